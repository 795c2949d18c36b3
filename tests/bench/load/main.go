// Load reads from a Kubernetes API server over HTTP/1.1 with a client certificate and prints what it saw as JSON.
//
// Without -rate each connection asks again as soon as it is answered; with it requests are sent at that rate, and the
// delay of one counts from when it was due. With -anew each has a header of its own, so that no two are the same bytes.
//
// With -watch every connection is a watch of one object. When each has been told of it, "open" is written to standard
// error. Each later change of the object writes its time, in nanoseconds since 1970, into the annotation -stamp, and a
// line with the same number comes on standard input; after the last, it ends. Whoever is told of a change is thereby
// told of those before it: the delay of each change, for each watch, is until the first event that carries it or a
// later one. It ends when all were told of the last change, and what was never told is an error. Of this program
// itself it says, from "open" on, how many processors it used and how late it was when it wanted to wake.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type seen struct {
	delays []time.Duration
	told   []event
	newest atomic.Int64
	bytes  int64
	errors int
	last   string
}

// An event of a watch: when the object it tells was changed, and when it came.
type event struct{ stamp, came int64 }

func (s *seen) fail(reason string) {
	s.errors++
	s.last = reason
}

type settings struct {
	url, stamp  string
	connections int
	lasts       time.Duration
	rate        float64
	watch, anew bool
	certificate tls.Certificate
}

func main() {
	var s settings
	flag.StringVar(&s.url, "url", "", "what to read")
	flag.StringVar(&s.stamp, "stamp", "bench/at", "annotation with the time of a change")
	flag.IntVar(&s.connections, "c", 8, "connections")
	flag.DurationVar(&s.lasts, "d", 2*time.Second, "how long")
	flag.Float64Var(&s.rate, "rate", 0, "requests per second altogether; 0 for as many as are answered")
	flag.BoolVar(&s.anew, "anew", false, "ask in other words each time")
	flag.BoolVar(&s.watch, "watch", false, "open watches instead")
	certificate := flag.String("cert", "", "client certificate")
	key := flag.String("key", "", "its key")
	flag.Parse()
	pair, err := tls.LoadX509KeyPair(*certificate, *key)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	s.certificate = pair
	results := make([]seen, s.connections)
	start := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), start.Add(s.lasts))
	defer cancel()
	var open, all sync.WaitGroup
	open.Add(len(results))
	for i := range results {
		all.Go(func() {
			if s.watch {
				isOpen := sync.OnceFunc(open.Done)
				defer isOpen() // whatever comes, nobody waits for it in vain
				if err := s.follow(ctx, &results[i], isOpen); err != nil {
					results[i].fail(err.Error())
					cancel() // without it the others are not what is to be measured
				}
			} else {
				s.read(ctx, start, i, &results[i])
			}
		})
	}
	var own ownCost
	if s.watch {
		open.Wait()
		if ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "open")
		}
		own.begin(ctx)
		changes := readChanges()
		waitForLast(ctx, results, changes)
		own.end()
		cancel()
		all.Wait()
		countAll(results, changes)
	}
	all.Wait()
	report(results, time.Since(start).Seconds(), &own)
}

func (s *settings) client() *http.Client {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Client{Transport: &http.Transport{
		Protocols:          protocols,
		MaxConnsPerHost:    1,
		DisableCompression: true,
		TLSClientConfig:    &tls.Config{Certificates: []tls.Certificate{s.certificate}, InsecureSkipVerify: true},
	}}
}

func (s *settings) get(ctx context.Context, client *http.Client, id string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, "GET", s.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "bench")
	if s.anew {
		request.Header.Set("X-Request-Id", id)
	}
	return client.Do(request)
}

func (s *settings) read(ctx context.Context, start time.Time, index int, result *seen) {
	client := s.client()
	defer client.CloseIdleConnections()
	for n := 0; ; n++ {
		due := time.Now()
		if s.rate > 0 {
			due = start.Add(time.Duration(float64(n*s.connections+index) / s.rate * float64(time.Second)))
			time.Sleep(time.Until(due))
		}
		if ctx.Err() != nil {
			return
		}
		response, err := s.get(ctx, client, fmt.Sprintf("%d-%d", index, n))
		if err == nil {
			var size int64
			size, err = io.Copy(io.Discard, response.Body)
			response.Body.Close()
			result.bytes += size
			if err == nil && response.StatusCode != http.StatusOK {
				result.fail(response.Status)
				continue
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			result.fail(err.Error())
			continue
		}
		result.delays = append(result.delays, time.Since(due))
	}
}

func (s *settings) follow(ctx context.Context, result *seen, isOpen func()) error {
	response, err := s.get(ctx, s.client(), "")
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	lines := bufio.NewReaderSize(response.Body, 1<<13)
	for isFirst := true; ; isFirst = false {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if ctx.Err() == nil {
				return err
			}
			return nil
		}
		came := time.Now().UnixNano()
		result.bytes += int64(len(line))
		if isFirst {
			isOpen()
		} else if stamp, ok := stampOf(line, s.stamp); ok {
			result.told = append(result.told, event{stamp, came})
			result.newest.Store(stamp)
		}
	}
}

// The changes that standard input tells, until it ends.
func readChanges() []int64 {
	var changes []int64
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if at, err := strconv.ParseInt(lines.Text(), 10, 64); err == nil {
			changes = append(changes, at)
		}
	}
	return changes
}

// Wait until every watch was told of the last change, or until the time is over.
func waitForLast(ctx context.Context, results []seen, changes []int64) {
	isBehind := func(i int) bool { return results[i].newest.Load() < changes[len(changes)-1] }
	for i := 0; len(changes) > 0 && i < len(results) && ctx.Err() == nil; {
		if isBehind(i) {
			time.Sleep(5 * time.Millisecond)
		} else {
			i++
		}
	}
}

func countAll(results []seen, changes []int64) {
	for i := range results {
		if results[i].errors > 0 {
			return // the others were only ended for it
		}
	}
	for i := range results {
		results[i].count(changes)
	}
}

// The delay of each change until the first event that carries it or a later one.
func (s *seen) count(changes []int64) {
	next := 0
	for _, change := range changes {
		for next < len(s.told) && s.told[next].stamp < change {
			next++
		}
		if next == len(s.told) {
			s.fail(fmt.Sprintf("a watch was not told of the change at %d", change))
			return
		}
		s.delays = append(s.delays, time.Duration(s.told[next].came-change))
	}
}

// What this program itself needs: if that is much, it and not the server may be what is late.
type ownCost struct {
	since      time.Time
	before     time.Duration
	processors float64
	late       []time.Duration
	stop       context.CancelFunc
	stopped    sync.WaitGroup
}

func (o *ownCost) begin(ctx context.Context) {
	o.since, o.before = time.Now(), processorTime()
	ctx, o.stop = context.WithCancel(ctx)
	o.stopped.Go(func() {
		const step = 5 * time.Millisecond
		for ctx.Err() == nil {
			asleep := time.Now()
			time.Sleep(step)
			o.late = append(o.late, time.Since(asleep)-step)
		}
	})
}

func (o *ownCost) end() {
	o.processors = (processorTime() - o.before).Seconds() / time.Since(o.since).Seconds()
	o.stop()
	o.stopped.Wait()
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func stampOf(line []byte, annotation string) (int64, bool) {
	_, rest, ok := bytes.Cut(line, []byte(strconv.Quote(annotation)+`:"`))
	if !ok {
		return 0, false
	}
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	at, err := strconv.ParseInt(string(text), 10, 64)
	return at, err == nil
}

// The delay below which this share of them lies, in milliseconds.
func quantile(delays []time.Duration, share float64) float64 {
	if len(delays) == 0 {
		return 0
	}
	slices.Sort(delays)
	return float64(delays[int(share*float64(len(delays)-1))].Nanoseconds()) / 1e6
}

func report(results []seen, seconds float64, own *ownCost) {
	var delays []time.Duration
	var size int64
	events, failures, last := 0, 0, ""
	for i := range results {
		each := &results[i]
		delays = append(delays, each.delays...)
		events += len(each.told)
		size += each.bytes
		failures += each.errors
		if each.errors > 0 {
			last = each.last
		}
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"count": len(delays), "seconds": seconds, "rate": float64(len(delays)) / seconds, "bytes": size,
		"errors": failures, "last_error": last,
		"p50_ms": quantile(delays, 0.5), "p90_ms": quantile(delays, 0.9), "p99_ms": quantile(delays, 0.99),
		"max_ms": quantile(delays, 1),
		"events": events, "processors": own.processors, "late_p99_ms": quantile(own.late, 0.99),
	})
}
