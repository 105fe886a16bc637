package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"go.etcd.io/etcd/tests/v3/robustness/client"
	"go.etcd.io/etcd/tests/v3/robustness/identity"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/traffic"
	"go.uber.org/zap"
	"golang.org/x/time/rate"
)

// bench is what one run is made of.
type bench struct {
	o *options
	p profile
	v *verdicts

	srv *server
	sab *saboteur
	// The compaction client goes through a gate that stays shut between a kill
	// and the moment the history recorder has caught up again: otherwise the
	// store could compact history that nobody has read (history.go).
	gate     *gate
	endpoint string

	base                 time.Time
	ids                  identity.Provider
	trafficSet, watchSet *client.ClientSet
	rec                  *recorder
}

// run does one run on a fresh directory and returns the verdicts.
func run(o *options, p profile, round int) *verdicts {
	name := fmt.Sprintf("r%d-%s", round, p.name)
	out := filepath.Join(o.out, name)
	must(os.MkdirAll(out, 0o755))
	dir := filepath.Join(o.work, "data-"+name)
	must(os.RemoveAll(dir))
	must(os.MkdirAll(dir, 0o700))
	if !o.keep {
		defer os.RemoveAll(dir)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	b := &bench{o: o, p: p, v: newVerdicts()}
	if !b.start(ctx, dir, filepath.Join(out, "server.log")) {
		return b.v
	}
	defer b.srv.kill()
	stop := b.connect()
	defer stop()
	if err := within(10*time.Second, func() error {
		return traffic.CheckEmptyDatabaseAtStart(ctx, zap.NewNop(), []string{b.endpoint}, b.trafficSet)
	}); err != nil {
		b.v.fail("empty-at-start", err.Error())
		return b.v
	}
	col, err := startCollector(ctx, b.watchSet, b.endpoint)
	must(err)
	began := time.Since(b.base)
	f := b.drive(ctx)
	ended := time.Since(b.base)

	time.Sleep(time.Second)
	b.lastPut(ctx)
	b.conclude(col, f, began, ended, out)
	return b.v
}

// start brings the server up on an empty directory.
func (b *bench) start(ctx context.Context, dir, log string) bool {
	srv, err := newServer(b.o.start, dir, b.o.port, b.o.port+1, log)
	if err != nil {
		b.v.fail("start", err.Error())
		return false
	}
	b.srv = srv
	t0 := time.Now()
	if err := srv.launch(); err != nil {
		b.v.fail("start", err.Error())
		return false
	}
	rev, err := srv.waitReady(ctx, b.o.startTimeout)
	if err != nil {
		srv.kill()
		b.v.fail("start", err.Error())
		return false
	}
	b.v.pass("start", fmt.Sprintf("ready after %v", time.Since(t0).Round(time.Millisecond)))
	if rev != 1 {
		srv.kill()
		b.v.fail("empty-at-start", fmt.Sprintf("a fresh store must answer with header revision 1, this one says %d", rev))
		return false
	}
	return true
}

// connect puts proxies and clients in place; what it returns takes them away.
func (b *bench) connect() func() {
	b.endpoint = b.srv.endpoint()
	b.sab = newSaboteur(b.o.sabotage, b.o.sabotageCount)
	unproxy := func() {}
	if b.o.sabotage != "" {
		stop, err := b.sab.serve(b.o.port+2, b.srv.endpoint())
		must(err)
		unproxy = stop
		b.endpoint = fmt.Sprintf("127.0.0.1:%d", b.o.port+2)
	}
	g, err := newGate(b.o.port+3, b.endpoint)
	must(err)
	b.gate = g
	b.base = time.Now()
	b.ids = identity.NewIDProvider()
	b.trafficSet = client.NewSet(b.ids, b.base)
	b.watchSet = client.NewSet(b.ids, b.base)
	b.rec = newRecorder(b.endpoint, b.base)
	must(b.rec.attach())
	return func() {
		b.rec.detach()
		b.watchSet.Close()
		b.trafficSet.Close()
		g.close()
		unproxy()
	}
}

// drive runs the traffic for its time, with faults, and waits for its end.
func (b *bench) drive(ctx context.Context) faultReport {
	kv := traffic.KeyValue{
		MinimalQPS: b.o.minQPS, MaximalQPS: b.o.qps, BurstableQPS: int(b.o.qps) * 5,
		MemberClientCount: 6, ClusterClientCount: 2, MaxNonUniqueRequestConcurrency: 3,
	}
	watch := traffic.WatchDefault
	limiter := rate.NewLimiter(rate.Limit(kv.MaximalQPS), kv.BurstableQPS)
	finish := make(chan struct{})
	keys := traffic.NewKeyStore(10, "key")
	storage := traffic.NewKubernetesStorage()
	endpoints := []string{b.endpoint}
	var wg sync.WaitGroup
	must(traffic.SimulateKeyValueTraffic(ctx, &wg, &kv, endpoints, b.trafficSet, b.p.tr, traffic.RunTrafficLoopParam{
		QPSLimiter: limiter, IDs: b.ids, LeaseIDStorage: identity.NewLeaseIDStorage(),
		NonUniqueRequestConcurrencyLimiter: traffic.NewConcurrencyLimiter(kv.MaxNonUniqueRequestConcurrency),
		KeyStore:                           keys, Storage: storage, Finish: finish,
	}))
	must(traffic.SimulateWatchTraffic(ctx, &wg, &watch, endpoints, b.trafficSet, b.p.tr, traffic.RunWatchLoopParam{
		Config: watch, QPSLimiter: limiter, KeyStore: keys, Storage: storage, Finish: finish, Logger: zap.NewNop(),
	}))
	if b.o.compaction > 0 {
		must(traffic.SimulateCompactionTraffic(ctx, &wg, &traffic.Compaction{Period: b.o.compaction},
			[]string{b.gate.addr()}, b.trafficSet, b.p.tr,
			traffic.RunCompactLoopParam{Period: b.o.compaction, Finish: finish}))
	}
	b.sab.arm()
	f := injectFaults(ctx, b.o, b.srv, b.rec, b.gate, b.v)
	close(finish)
	if err := within(60*time.Second, func() error { wg.Wait(); return nil }); err != nil {
		b.v.fail("traffic-end", "the traffic did not end: "+err.Error())
	}
	return f
}

// lastPut ends the run: etcd's validator needs its last operation to have succeeded.
func (b *bench) lastPut(ctx context.Context) {
	cc, err := b.trafficSet.NewClient([]string{b.endpoint})
	must(err)
	defer cc.Close()
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if _, err := cc.Put(ctx, "tombstone", "true"); err != nil {
		b.v.fail("last-put", "the put that ends the run failed: "+err.Error())
	} else {
		b.v.pass("last-put", "")
	}
}

// conclude lets the watches come to the end of the history, then judges all.
func (b *bench) conclude(col *collector, f faultReport, began, ended time.Duration, out string) {
	v, rec := b.v, b.rec
	kvReports := b.trafficSet.Reports()
	last := report.OperationsMaxRevision(kvReports)
	if col.finish(last, 20*time.Second) {
		v.pass("collector", fmt.Sprintf("the long watch saw revision %d", last))
	} else {
		v.fail("collector", fmt.Sprintf("the long watch stopped at revision %d of %d", col.seen(), last))
	}
	if !rec.waitFor(last, 20*time.Second) {
		v.fail("history-complete", fmt.Sprintf("the recorder's watch stopped at revision %d of %d", rec.lastRev(), last))
	}
	reports := slices.Concat(kvReports, b.watchSet.Reports())
	fin := readFinal(b.endpoint, rec.lastRev())
	if b.srv.diedAlone() {
		v.fail("server-alive", "the server process ended without being killed by us, see server.log")
	} else {
		v.pass("server-alive", "")
	}
	rec.detach()
	b.srv.kill()
	if b.o.sabotage != "" {
		v.note(fmt.Sprintf("sabotage %s struck %d times", b.o.sabotage, b.sab.struck()+int64(f.rolled)))
	}
	v.stats(reports, began, ended, f, b.o)
	judge(b.o, b.p, v, reports, rec, fin, out)
}
