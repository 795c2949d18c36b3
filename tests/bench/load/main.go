// Load reads from a Kubernetes API server over HTTP/1.1 with a client certificate and prints what it saw as JSON.
//
// Without -rate each connection asks again as soon as it is answered; with it requests are sent at that rate, and the
// delay of one counts from when it was due. With -watch every connection is a watch, and the delay of an event counts
// from the nanoseconds since 1970 that its object carries in the annotation -stamp.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

type seen struct {
	delays []time.Duration
	bytes  int64
	errors int
	last   string
}

func (s *seen) fail(reason string) {
	s.errors++
	s.last = reason
}

type settings struct {
	url, stamp  string
	connections int
	lasts       time.Duration
	rate        float64
	watch       bool
	certificate tls.Certificate
}

func main() {
	var s settings
	flag.StringVar(&s.url, "url", "", "what to read")
	flag.StringVar(&s.stamp, "stamp", "bench/at", "annotation with the time of a change")
	flag.IntVar(&s.connections, "c", 8, "connections")
	flag.DurationVar(&s.lasts, "d", 2*time.Second, "how long")
	flag.Float64Var(&s.rate, "rate", 0, "requests per second altogether; 0 for as many as are answered")
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
	var open atomic.Int64
	var all sync.WaitGroup
	for i := range results {
		all.Go(func() {
			if s.watch {
				s.follow(ctx, &results[i], &open)
			} else {
				s.read(ctx, start, i, &results[i])
			}
		})
	}
	all.Wait()
	report(results, time.Since(start).Seconds())
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

func (s *settings) get(ctx context.Context, client *http.Client) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, "GET", s.url, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	request.Header.Set("User-Agent", "bench")
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
		response, err := s.get(ctx, client)
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

func (s *settings) follow(ctx context.Context, result *seen, open *atomic.Int64) {
	response, err := s.get(ctx, s.client())
	if err != nil {
		result.fail(err.Error())
		return
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		result.fail(response.Status)
		return
	}
	lines := bufio.NewReaderSize(response.Body, 1<<13)
	isTold := false
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if ctx.Err() == nil {
				result.fail(err.Error())
			}
			return
		}
		now := time.Now()
		result.bytes += int64(len(line))
		if !isTold {
			isTold = true
			if open.Add(1) == int64(s.connections) {
				fmt.Fprintln(os.Stderr, "open")
			}
		}
		if at, ok := stampOf(line, s.stamp); ok && bytes.Contains(line, []byte(`"MODIFIED"`)) {
			result.delays = append(result.delays, now.Sub(time.Unix(0, at)))
		}
	}
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

func report(results []seen, seconds float64) {
	var delays []time.Duration
	var size int64
	failures, last := 0, ""
	for _, each := range results {
		delays = append(delays, each.delays...)
		size += each.bytes
		failures += each.errors
		if each.errors > 0 {
			last = each.last
		}
	}
	slices.Sort(delays)
	at := func(share float64) float64 {
		if len(delays) == 0 {
			return 0
		}
		return float64(delays[int(share*float64(len(delays)-1))].Nanoseconds()) / 1e6
	}
	json.NewEncoder(os.Stdout).Encode(map[string]any{
		"count": len(delays), "seconds": seconds, "rate": float64(len(delays)) / seconds, "bytes": size,
		"errors": failures, "last_error": last,
		"p50_ms": at(0.5), "p90_ms": at(0.9), "p99_ms": at(0.99), "max_ms": at(1),
	})
}
