//go:debug randseednop=0

// Command robust runs the traffic generators and the validators of etcd's own
// robustness suite against any server that speaks the etcd v3 API and that can
// be started by a shell command, injecting kill -9 + restart itself.
//
// What comes from etcd (imported, module go.etcd.io/etcd/tests/v3): the
// recording client, the Kubernetes and etcd traffic, the compaction loop, the
// watch loops, the model, the replay and the validators.
// What is ours: process handling, fault injection, the reconstruction of the
// "persisted requests" (see history.go for what that does and does not prove),
// a few checks of our own (checks.go) and the sabotage proxy (sabotage.go).
package main

import (
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/tests/v3/robustness/traffic"
	"go.uber.org/zap"
)

type options struct {
	start, faults, work, out, sabotage string
	summary                            string
	seconds, killEvery                 time.Duration
	qps, minQPS                        float64
	rounds, port, sabotageCount        int
	seed                               int64
	compaction, linTimeout, opTimeout  time.Duration
	startTimeout                       time.Duration
	keep, verbose                      bool
}

type profile struct {
	name string
	tr   traffic.Traffic
}

func profiles(sel string) ([]profile, error) {
	all := map[string]profile{
		"kubernetes":               {"kubernetes", traffic.Kubernetes},
		"kubernetes-create-delete": {"kubernetes-create-delete", traffic.KubernetesCreateDelete},
		"etcd":                     {"etcd", traffic.EtcdPutDeleteLease},
		"etcd-put":                 {"etcd-put", traffic.EtcdPut},
		"etcd-delete":              {"etcd-delete", traffic.EtcdDelete},
	}
	if sel == "both" {
		return []profile{all["kubernetes"], all["etcd"]}, nil
	}
	var res []profile
	for _, n := range strings.Split(sel, ",") {
		p, ok := all[n]
		if !ok {
			return nil, fmt.Errorf("unknown traffic %q", n)
		}
		res = append(res, p)
	}
	return res, nil
}

func main() {
	var o options
	var trafficSel string
	secs := flag.Int("seconds", 60, "length of the traffic of one run")
	kill := flag.Float64("kill-every", 8, "seconds between kills")
	comp := flag.Int("compact-every-ms", 200, "compaction period in ms (>=100), 0 = no compaction")
	lin := flag.Int("lin-timeout", 300, "seconds for the linearizability search")
	opt := flag.Int("op-timeout-ms", 200, "deadline of a client request in ms (200 is etcd's value)")
	st := flag.Int("start-timeout", 60, "seconds for the server to become ready")
	flag.StringVar(&o.start, "start", "", "server command; {DIR} {CPORT} {PPORT} are replaced")
	flag.StringVar(&trafficSel, "traffic", "both", "kubernetes|etcd|both, or a list with kubernetes-create-delete, etcd-put, etcd-delete")
	flag.StringVar(&o.faults, "faults", "kill", "kill|none")
	flag.StringVar(&o.work, "work", "", "directory for server data (default: a temporary one)")
	flag.StringVar(&o.out, "out", "", "directory for logs and porcupine html (default: under work)")
	flag.StringVar(&o.summary, "summary", "", "file that gets one line: suite, passed, failed, skipped, known")
	flag.StringVar(&o.sabotage, "sabotage", "", "break the server on purpose: "+strings.Join(sabotageNames, "|"))
	flag.IntVar(&o.sabotageCount, "sabotage-count", 2, "how many times the sabotage strikes")
	flag.Float64Var(&o.qps, "qps", 200, "upper limit of the request rate")
	flag.Float64Var(&o.minQPS, "min-qps", 20, "fewer successful requests per second than this: the run proves too little, FAIL coverage")
	flag.IntVar(&o.rounds, "rounds", 1, "repetitions")
	flag.IntVar(&o.port, "port", 23100, "first of the four local ports used")
	flag.Int64Var(&o.seed, "seed", 0, "seed of the random choices (0: from the clock); concurrency still differs between runs")
	flag.BoolVar(&o.keep, "keep", false, "keep the data directories")
	flag.BoolVar(&o.verbose, "v", false, "print validator log lines")
	flag.Parse()
	o.seconds = time.Duration(*secs) * time.Second
	o.killEvery = time.Duration(*kill * float64(time.Second))
	o.compaction = time.Duration(*comp) * time.Millisecond
	o.linTimeout = time.Duration(*lin) * time.Second
	o.opTimeout = time.Duration(*opt) * time.Millisecond
	o.startTimeout = time.Duration(*st) * time.Second
	ps, err := profiles(trafficSel)
	if err != nil || o.start == "" || (o.faults != "kill" && o.faults != "none") ||
		(o.sabotage != "" && !slices.Contains(sabotageNames, o.sabotage)) {
		fmt.Fprintln(os.Stderr, "usage error:", err)
		flag.Usage()
		os.Exit(2)
	}
	if o.work == "" {
		o.work, err = os.MkdirTemp("", "robust-")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
		if !o.keep {
			defer os.RemoveAll(o.work)
		}
	}
	// The server may change its directory.
	if o.work, err = filepath.Abs(o.work); err != nil {
		panic(err)
	}
	if o.out == "" {
		o.out = filepath.Join(o.work, "out")
	}
	if o.seed == 0 {
		o.seed = time.Now().UnixNano()
	}
	traffic.RequestTimeout = o.opTimeout
	killOnSignal()
	failed := 0
	for r := 1; r <= o.rounds; r++ {
		for _, p := range ps {
			seed := o.seed + int64(r-1)
			rand.Seed(seed)
			fmt.Printf("=== run round=%d traffic=%s faults=%s seconds=%d qps<=%g seed=%d sabotage=%s\n",
				r, p.name, o.faults, int(o.seconds.Seconds()), o.qps, seed, orNone(o.sabotage))
			v := run(&o, p, r)
			v.print()
			if v.failed() {
				failed++
			}
		}
	}
	runs := o.rounds * len(ps)
	if o.summary != "" {
		must(summarize(o.summary, runs-failed, failed))
	}
	if failed > 0 {
		fmt.Printf("RESULT FAIL (%d of %d runs failed)\n", failed, runs)
		if !o.keep && o.work != "" {
			fmt.Println("logs kept in", o.out)
		}
		os.Exit(1)
	}
	fmt.Printf("RESULT PASS (%d runs)\n", runs)
}

func summarize(path string, passed, failed int) error {
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = fmt.Fprintf(f, "etcd-robustness\t%d\t%d\t0\t0\n", passed, failed)
	return err
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func within(d time.Duration, f func() error) error {
	ch := make(chan error, 1)
	go func() { ch <- f() }()
	select {
	case err := <-ch:
		return err
	case <-time.After(d):
		return errors.New("no end after " + d.String())
	}
}

func plainClient(endpoint string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, Logger: zap.NewNop(), DialTimeout: 2 * time.Second,
	})
}
