// Command judge lets Prometheus' and Grafana's own packages judge what we ship for them: the linter of `promtool check
// metrics`, the rule reader of `promtool check rules`, the PromQL parser and engine, and Grafana's model of a dashboard.
//
// It reads one request as JSON from standard input and writes one answer. promtool itself is not built: it brings the
// clients of every cloud with it, and takes several times as long.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"math"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	grafanaprometheus "github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/template"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
)

type request struct {
	Exposition  string          `json:"exposition"`  // to be linted
	Rules       string          `json:"rules"`       // a rule file
	Dashboard   json.RawMessage `json:"dashboard"`   // of Grafana
	Expressions []string        `json:"expressions"` // to be parsed
	Scrapes     []scrape        `json:"scrapes"`     // what is known to the queries and rules, oldest first
	Queries     []query         `json:"queries"`     // to be answered
	Evaluate    []float64       `json:"evaluate"`    // the times at which the rules are evaluated, ascending
}

type answer struct {
	Lint        []string     `json:"lint"`
	Rules       []string     `json:"rules"`
	Dashboard   []string     `json:"dashboard"`
	Expressions []expression `json:"expressions"`
	Results     [][]point    `json:"results"` // one list for each query
	Alerts      []alert      `json:"alerts"`  // that fire at the last of the times
}

type expression struct {
	Error   string   `json:"error"`
	Metrics []string `json:"metrics"` // the names it selects
	By      []string `json:"by"`      // the labels by which it aggregates
}

var promQL = parser.NewParser(parser.Options{})

func main() {
	var asked request
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		log.Fatal(err)
	}
	told := answer{Lint: lint(asked.Exposition), Dashboard: checkDashboard(asked.Dashboard)}
	groups, problems := rulefmt.Parse([]byte(asked.Rules), false, model.UTF8Validation, promQL, promslog.NewNopLogger())
	for _, problem := range problems {
		told.Rules = append(told.Rules, problem.Error())
	}
	for _, text := range asked.Expressions {
		told.Expressions = append(told.Expressions, parse(text))
	}
	known := newSeries(asked.Scrapes)
	for _, each := range asked.Queries {
		told.Results = append(told.Results, known.points(each))
	}
	if len(problems) == 0 {
		told.Alerts = known.firing(groups, asked.Evaluate)
	}
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		log.Fatal(err)
	}
}

func lint(exposition string) []string {
	problems, err := promlint.New(strings.NewReader(exposition)).Lint()
	if err != nil {
		return []string{err.Error()}
	}
	var found []string
	for _, problem := range problems {
		found = append(found, problem.Metric+": "+problem.Text)
	}
	return found
}

func checkDashboard(text json.RawMessage) []string {
	if len(text) == 0 {
		return nil
	}
	known := cog.NewRuntime()
	known.RegisterPanelcfgVariant(bargauge.VariantConfig())
	known.RegisterPanelcfgVariant(stat.VariantConfig())
	known.RegisterPanelcfgVariant(table.VariantConfig())
	known.RegisterPanelcfgVariant(timeseries.VariantConfig())
	known.RegisterDataqueryVariant(grafanaprometheus.VariantConfig())
	var board dashboard.Dashboard
	err := board.UnmarshalJSONStrict(text)
	if err == nil {
		err = board.Validate()
	}
	if err == nil || err.Error() == "" { // a list of no errors is not nil
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func parse(text string) expression {
	parsed, err := promQL.ParseExpr(text)
	if err != nil {
		return expression{Error: err.Error()}
	}
	var found expression
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		switch part := node.(type) {
		case *parser.VectorSelector:
			found.Metrics = append(found.Metrics, part.Name)
		case *parser.AggregateExpr:
			found.By = append(found.By, part.Grouping...)
		}
		return nil
	})
	slices.Sort(found.Metrics)
	slices.Sort(found.By)
	found.Metrics, found.By = slices.Compact(found.Metrics), slices.Compact(found.By)
	return found
}

// One visit of Prometheus to one target.
type scrape struct {
	Time   float64           `json:"time"`   // seconds
	Target map[string]string `json:"target"` // the labels it gets
	Text   string            `json:"text"`   // what it said; empty when it could not be reached
}

type query struct {
	Expr string  `json:"expr"`
	Time float64 `json:"time"`
}

type point struct {
	Labels map[string]string `json:"labels"`
	Value  *float64          `json:"value"` // null for NaN
}

type alert struct {
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

type sample struct {
	at    int64
	value float64
}

func (s sample) T() int64                      { return s.at }
func (s sample) ST() int64                     { return 0 }
func (s sample) F() float64                    { return s.value }
func (s sample) H() *histogram.Histogram       { return nil }
func (s sample) FH() *histogram.FloatHistogram { return nil }
func (s sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample           { return s }

// Everything that was scraped.
type series struct {
	engine  *promql.Engine
	samples map[string][]chunks.Sample
	labels  map[string]labels.Labels
}

// As Prometheus does, a sample that a target no longer has is marked as stale, and `up` says whether it was reached.
func newSeries(scrapes []scrape) *series {
	known := &series{
		engine: promql.NewEngine(promql.EngineOpts{
			MaxSamples: 50_000_000, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true, Parser: promQL,
		}),
		samples: map[string][]chunks.Sample{},
		labels:  map[string]labels.Labels{},
	}
	had := map[string][]labels.Labels{}
	for _, each := range scrapes {
		at, target := int64(each.Time*1000), labels.FromMap(each.Target)
		has := read(each.Text, each.Target)
		now := map[string]bool{}
		var names []labels.Labels
		for _, one := range has {
			known.add(one.labels, at, one.value)
			now[one.labels.String()] = true
			names = append(names, one.labels)
		}
		for _, name := range had[target.String()] {
			if !now[name.String()] {
				known.add(name, at, math.Float64frombits(value.StaleNaN))
			}
		}
		had[target.String()] = names
		up := 0.0
		if each.Text != "" {
			up = 1
		}
		known.add(named("up", each.Target), at, up)
	}
	return known
}

type labelled struct {
	labels labels.Labels
	value  float64
}

func read(text string, target map[string]string) []labelled {
	var found []labelled
	reader := textparse.NewPromParser([]byte(text), labels.NewSymbolTable(), false)
	for {
		entry, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			log.Fatalf("a scrape cannot be read: %v", err)
		}
		if entry == textparse.EntrySeries {
			var own labels.Labels
			reader.Labels(&own)
			builder := labels.NewBuilder(own)
			for name, text := range target {
				builder.Set(name, text)
			}
			_, _, number := reader.Series()
			found = append(found, labelled{builder.Labels(), number})
		}
	}
}

func named(name string, rest map[string]string) labels.Labels {
	builder := labels.NewBuilder(labels.FromMap(rest))
	return builder.Set(labels.MetricName, name).Labels()
}

func (s *series) add(name labels.Labels, at int64, number float64) {
	key := name.String()
	s.labels[key] = name
	s.samples[key] = append(s.samples[key], sample{at, number})
}

// Querier, and with it Queryable.
func (s *series) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: s.choose}, nil
}

func (s *series) choose(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var keys []string
	for key, name := range s.labels {
		if !slices.ContainsFunc(matchers, func(each *labels.Matcher) bool { return !each.Matches(name.Get(each.Name)) }) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	chosen := &set{at: -1}
	for _, key := range keys {
		chosen.all = append(chosen.all, storage.NewListSeries(s.labels[key], s.samples[key]))
	}
	return chosen
}

type set struct {
	all []storage.Series
	at  int
}

func (s *set) Next() bool                        { s.at++; return s.at < len(s.all) }
func (s *set) At() storage.Series                { return s.all[s.at] }
func (s *set) Err() error                        { return nil }
func (s *set) Warnings() annotations.Annotations { return nil }

func (s *series) vector(expr string, at time.Time) promql.Vector {
	asked, err := s.engine.NewInstantQuery(context.Background(), s, nil, expr, at)
	if err != nil {
		log.Fatalf("%s: %v", expr, err)
	}
	defer asked.Close()
	result := asked.Exec(context.Background())
	if result.Err != nil {
		log.Fatalf("%s: %v", expr, result.Err)
	}
	if scalar, err := result.Scalar(); err == nil {
		return promql.Vector{{F: scalar.V}}
	}
	vector, err := result.Vector()
	if err != nil {
		log.Fatalf("%s: %v", expr, err)
	}
	return slices.Clone(vector)
}

func (s *series) points(asked query) []point {
	found := []point{}
	for _, each := range s.vector(asked.Expr, seconds(asked.Time)) {
		one := point{Labels: each.Metric.Map()}
		if !math.IsNaN(each.F) {
			one.Value = &each.F
		}
		found = append(found, one)
	}
	return found
}

// Evaluates every alerting rule at each of the times. An alert fires when its expression had it at all of the latest
// times, for as long as the rule says. Source: rules/alerting.go, without restoring state and keep_firing_for.
func (s *series) firing(groups *rulefmt.RuleGroups, times []float64) []alert {
	found := []alert{}
	for _, group := range groups.Groups {
		for _, rule := range group.Rules {
			since := map[string]time.Time{}
			for number, at := range times {
				still := map[string]time.Time{}
				for _, each := range s.vector(rule.Expr, seconds(at)) {
					key := each.Metric.String()
					if began, known := since[key]; known {
						still[key] = began
					} else {
						still[key] = seconds(at)
					}
					if number == len(times)-1 && seconds(at).Sub(still[key]) >= time.Duration(rule.For) {
						found = append(found, s.expand(rule, each, seconds(at)))
					}
				}
				since = still
			}
		}
	}
	return found
}

func (s *series) expand(rule rulefmt.Rule, each promql.Sample, at time.Time) alert {
	own := labels.NewBuilder(each.Metric).Del(labels.MetricName).Labels().Map()
	data := template.AlertTemplateData(own, nil, "", each)
	const definitions = "{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$value := .Value}}"
	fill := func(texts, filled map[string]string) map[string]string {
		for name, text := range texts {
			expander := template.NewTemplateExpander(
				context.Background(), definitions+text, rule.Alert, data, model.TimeFromUnixNano(at.UnixNano()),
				func(_ context.Context, expr string, at time.Time) (promql.Vector, error) {
					return s.vector(expr, at), nil
				},
				&url.URL{}, nil,
			)
			whole, err := expander.Expand()
			if err != nil {
				log.Fatalf("%s, %s: %v", rule.Alert, name, err)
			}
			filled[name] = whole
		}
		return filled
	}
	own[model.AlertNameLabel] = rule.Alert
	return alert{Labels: fill(rule.Labels, own), Annotations: fill(rule.Annotations, map[string]string{})}
}

func seconds(at float64) time.Time {
	return time.UnixMilli(int64(at * 1000)).UTC()
}
