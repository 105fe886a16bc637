// store-load: loads an etcd-compatible store with the requests a kube-apiserver makes and prints one JSON line.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc/metadata"
)

var (
	endpoint    = flag.String("endpoint", "http://127.0.0.1:2379", "client URL of the store")
	shape       = flag.String("shape", "create", "create|update|delete|get|put|list|count|watch|mixed|preload|versions|sync")
	clients     = flag.Int("clients", 100, "concurrent callers")
	connections = flag.Int("connections", 1, "gRPC connections the callers share")
	seconds     = flag.Float64("seconds", 10, "length of the measured part")
	keys        = flag.Int("keys", 10000, "keys present before the measured part (all shapes but create)")
	valueSize   = flag.Int("value-size", 512, "bytes")
	limit       = flag.Int64("limit", 500, "page size of list")
	watchers    = flag.Int("watchers", 100, "watch: number of watches on the whole prefix")
	rate        = flag.Float64("rate", 0, "total operations/s, fixed schedule (0: as fast as the callers can; watch: default 100 updates/s)")
	createElse  = flag.Bool("create-else", false, "create: with a range in the else branch (the apiserver sends none)")
	prevKV      = flag.Bool("prev-kv", true, "watch: ask for the previous value, as the apiserver does")
	prefix      = flag.String("prefix", "/registry/pods/", "where the keys lie")
	run         = flag.String("run", "", "name of new keys (default: the time)")
	pid         = flag.Int("pid", 0, "server process: adds its CPU time and memory to the line")
	timeout     = flag.Duration("op-timeout", 10*time.Second, "of one request")
	streams     = flag.Int("watch-streams", 100, "watch: gRPC streams the watches share")
	drain       = flag.Duration("drain", time.Second, "watch: how long to wait for the last events")
	label       = flag.String("label", "", "copied into the line")
	caseName    = flag.String("case", "", "copied into the line")
	batch       = flag.Int("batch", 1, "preload, watch: puts of one transaction")
	dir         = flag.String("dir", ".", "sync: where to write")
	versions    = flag.Int("versions", 1000000, "versions: how many, over all keys")
	compact     = flag.Bool("compact", false, "compact to the newest revision as the measured part begins")
)

type kv struct {
	key string
	rev int64
}

type worker struct {
	id       int
	cli      *clientv3.Client
	own      []kv // keys only this caller writes
	next     int
	seq      int
	lat      []uint32 // microseconds
	errs     int
	lost     int // compare failed
	items    int64
	firstErr string
	value    []byte
	rng      *rand.Rand
	page     string // list position
	pageRev  int64
	kind     [5]int
}

func name(i int) string { return fmt.Sprintf("%sns-%02d/pod-%08d", *prefix, i%20, i) }

func (w *worker) fill() string {
	binary.BigEndian.PutUint64(w.value, uint64(time.Now().UnixNano()))
	return string(w.value)
}

func (w *worker) create(ctx context.Context, key string) (int64, bool, error) {
	t := w.cli.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, w.fill()))
	if *createElse {
		t = t.Else(clientv3.OpGet(key))
	}
	r, err := t.Commit()
	if err != nil {
		return 0, false, err
	}
	return r.Header.Revision, r.Succeeded, nil
}

func current(r *clientv3.TxnResponse) int64 {
	if len(r.Responses) > 0 {
		if g := r.Responses[0].GetResponseRange(); g != nil && len(g.Kvs) > 0 {
			return g.Kvs[0].ModRevision
		}
	}
	return 0
}

func (w *worker) update(ctx context.Context, k *kv) (bool, error) {
	r, err := w.cli.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(k.key), "=", k.rev)).
		Then(clientv3.OpPut(k.key, w.fill())).Else(clientv3.OpGet(k.key)).Commit()
	if err != nil {
		return false, err
	}
	if r.Succeeded {
		k.rev = r.Header.Revision
		return true, nil
	}
	k.rev = current(r)
	return false, nil
}

func (w *worker) del(ctx context.Context, k *kv) (bool, error) {
	r, err := w.cli.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(k.key), "=", k.rev)).
		Then(clientv3.OpDelete(k.key)).Else(clientv3.OpGet(k.key)).Commit()
	if err != nil {
		return false, err
	}
	if !r.Succeeded {
		k.rev = current(r)
	}
	return r.Succeeded, nil
}

func (w *worker) listPage(ctx context.Context) error {
	start, opts := *prefix, []clientv3.OpOption{clientv3.WithLimit(*limit), clientv3.WithRange(clientv3.GetPrefixRangeEnd(*prefix))}
	if w.page != "" {
		start = w.page
		opts = append(opts, clientv3.WithRev(w.pageRev))
	}
	r, err := w.cli.Get(ctx, start, opts...)
	if err != nil {
		w.page = ""
		return err
	}
	w.items += int64(len(r.Kvs))
	if !r.More || len(r.Kvs) == 0 {
		w.page = ""
		return nil
	}
	if w.page == "" {
		w.pageRev = r.Header.Revision
	}
	w.page = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
	return nil
}

var errDone = errors.New("no keys left")

func (w *worker) one(ctx context.Context, sh string) (bool, error) {
	switch sh {
	case "create":
		w.seq++
		_, ok, err := w.create(ctx, fmt.Sprintf("%sns-%02d/pod-%s-%04d-%07d", *prefix, w.id%20, *run, w.id, w.seq))
		return ok, err
	case "update":
		if len(w.own) == 0 {
			return false, errDone
		}
		w.next = (w.next + 1) % len(w.own)
		return w.update(ctx, &w.own[w.next])
	case "put":
		if len(w.own) == 0 {
			return false, errDone
		}
		w.next = (w.next + 1) % len(w.own)
		_, err := w.cli.Put(ctx, w.own[w.next].key, w.fill())
		return err == nil, err
	case "count":
		r, err := w.cli.Get(ctx, *prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err == nil {
			w.items = r.Count
		}
		return err == nil && r.Count >= int64(*keys), err
	case "burst":
		return w.burst(ctx)
	case "delete":
		if len(w.own) == 0 {
			return false, errDone
		}
		k := &w.own[len(w.own)-1]
		ok, err := w.del(ctx, k)
		if ok || (err == nil && k.rev == 0) {
			w.own = w.own[:len(w.own)-1]
		}
		return ok, err
	case "get":
		r, err := w.cli.Get(ctx, name(w.rng.Intn(*keys)))
		if err == nil {
			w.items += int64(len(r.Kvs))
		}
		return err == nil && len(r.Kvs) == 1, err
	case "list":
		err := w.listPage(ctx)
		return err == nil, err
	case "mixed": // 45 get, 35 update, 10 create, 5 delete (of a key made here), 5 list pages
		n := w.rng.Intn(100)
		switch {
		case n < 45:
			w.kind[0]++
			return w.one(ctx, "get")
		case n < 80:
			w.kind[1]++
			return w.one(ctx, "update")
		case n < 95:
			w.seq++
			key := fmt.Sprintf("%sns-%02d/pod-%s-%04d-%07d", *prefix, w.id%20, *run, w.id, w.seq)
			rev, ok, err := w.create(ctx, key)
			w.kind[2]++
			if ok && err == nil && n >= 90 {
				w.kind[3]++
				return w.del(ctx, &kv{key, rev})
			}
			return ok, err
		default:
			w.kind[4]++
			return w.one(ctx, "list")
		}
	}
	return false, fmt.Errorf("unknown shape %q", sh)
}

// burst changes many keys in one revision: each watch gets them in one response.
func (w *worker) burst(ctx context.Context) (bool, error) {
	ops := make([]clientv3.Op, 0, *batch)
	for len(ops) < *batch && len(ops) < len(w.own) {
		w.next = (w.next + 1) % len(w.own)
		ops = append(ops, clientv3.OpPut(w.own[w.next].key, w.fill()))
	}
	if len(ops) == 0 {
		return false, errDone
	}
	_, err := w.cli.Txn(ctx).Then(ops...).Commit()
	return err == nil, err
}

// syncRate overwrites one block of a file and syncs it, as a log does, and prints how often it could.
func syncRate() {
	f, err := os.CreateTemp(*dir, "sync-rate")
	if err != nil {
		fatal(err)
	}
	defer os.Remove(f.Name())
	block := make([]byte, 4096)
	if _, err = f.WriteAt(make([]byte, 1<<16), 0); err == nil {
		err = f.Sync()
	}
	var lat []uint32
	start := time.Now()
	for err == nil && time.Since(start).Seconds() < *seconds {
		t0 := time.Now()
		if _, err = f.WriteAt(block, 0); err == nil {
			err = syscall.Fdatasync(int(f.Fd()))
		}
		lat = append(lat, uint32(time.Since(t0).Microseconds()))
	}
	if err != nil {
		fatal(err)
	}
	el := time.Since(start).Seconds()
	sort.Slice(lat, func(i, j int) bool { return lat[i] < lat[j] })
	line, _ := json.Marshal(map[string]any{"shape": "sync", "label": "disk", "case": *caseName, "rate": float64(len(lat)) / el, "p50_ms": pct(lat, 0.5), "p99_ms": pct(lat, 0.99)})
	fmt.Println(string(line))
}

func procCPU(pid int) (cpu float64, rss int64) { // seconds, KiB
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, 0
	}
	s := string(b)
	f := strings.Fields(s[strings.LastIndex(s, ")")+2:])
	u, _ := strconv.ParseFloat(f[11], 64)
	k, _ := strconv.ParseFloat(f[12], 64)
	p, _ := strconv.ParseInt(f[21], 10, 64)
	return (u + k) / 100, p * int64(os.Getpagesize()) / 1024
}

func pct(l []uint32, p float64) float64 {
	if len(l) == 0 {
		return 0
	}
	i := int(p * float64(len(l)))
	if i >= len(l) {
		i = len(l) - 1
	}
	return float64(l[i]) / 1000
}

func fatal(err error) {
	fmt.Fprintln(os.Stderr, "store-load:", err)
	os.Exit(1)
}

// isThere tells whether enough keys exist already, for shapes that need no revisions: on some stores
// listing them takes longer than the measured part.
func isThere(w *worker) bool {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	r, err := w.cli.Get(ctx, *prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
	return err == nil && r.Count >= int64(*keys)
}

// preload makes sure that keys exist and tells their revisions.
func preload(ws []*worker) []kv {
	have := map[string]int64{}
	scan := func() {
		w := ws[0]
		for i := 0; ; i++ {
			opts := []clientv3.OpOption{clientv3.WithLimit(1000), clientv3.WithRange(clientv3.GetPrefixRangeEnd(*prefix)), clientv3.WithKeysOnly()}
			start := *prefix
			if w.page != "" {
				start = w.page
				opts = append(opts, clientv3.WithRev(w.pageRev))
			}
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			r, err := w.cli.Get(ctx, start, opts...)
			cancel()
			if err != nil {
				fatal(fmt.Errorf("listing before the run: %w", err))
			}
			for _, x := range r.Kvs {
				have[string(x.Key)] = x.ModRevision
			}
			if w.page == "" {
				w.pageRev = r.Header.Revision
			}
			if !r.More || len(r.Kvs) == 0 {
				w.page = ""
				return
			}
			w.page = string(r.Kvs[len(r.Kvs)-1].Key) + "\x00"
		}
	}
	scan()
	var todo []string
	for i := 0; i < *keys; i++ {
		if _, ok := have[name(i)]; !ok {
			todo = append(todo, name(i))
		}
	}
	if len(todo) > 0 {
		fillAll(ws, todo, have)
	}
	out := make([]kv, 0, *keys)
	for i := 0; i < *keys; i++ {
		if rev, ok := have[name(i)]; ok {
			out = append(out, kv{name(i), rev})
		}
	}
	return out
}

// fillAll puts the keys, some in one transaction, and notes their revisions.
func fillAll(ws []*worker, todo []string, have map[string]int64) {
	size := max(*batch, 1)
	var n int64 = -1
	var wg sync.WaitGroup
	var mu sync.Mutex
	for c := 0; c < 128; c++ {
		w := &worker{cli: ws[c%len(ws)].cli, value: make([]byte, *valueSize), rng: rand.New(rand.NewSource(int64(c)))}
		w.rng.Read(w.value)
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				first := int(atomic.AddInt64(&n, 1)) * size
				if first >= len(todo) {
					return
				}
				part := todo[first:min(first+size, len(todo))]
				ops := make([]clientv3.Op, len(part))
				for i, key := range part {
					ops[i] = clientv3.OpPut(key, w.fill())
				}
				for try := 0; ; try++ {
					ctx, cancel := context.WithTimeout(context.Background(), 3**timeout)
					r, err := w.cli.Txn(ctx).Then(ops...).Commit()
					cancel()
					if err == nil {
						mu.Lock()
						for _, key := range part {
							have[key] = r.Header.Revision
						}
						mu.Unlock()
						break
					}
					if try > 5 {
						fatal(fmt.Errorf("filling: %w", err))
					}
				}
			}
		}()
	}
	wg.Wait()
}

// addVersions puts the keys again and again, --batch of them a transaction.
func addVersions(ws []*worker) {
	var left atomic.Int64
	left.Store(int64(*versions))
	var wg sync.WaitGroup
	for _, w := range ws {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for left.Add(-int64(min(max(*batch, 1), len(w.own)))) >= 0 {
				ctx, cancel := context.WithTimeout(context.Background(), 3**timeout)
				_, err := w.burst(ctx)
				cancel()
				if err != nil {
					fatal(fmt.Errorf("adding versions: %w", err))
				}
			}
		}()
	}
	wg.Wait()
}

// compactNow forgets all versions but the newest, and tells how long the answer took.
func compactNow(cli *clientv3.Client) float64 {
	ctx, cancel := context.WithTimeout(context.Background(), 3**timeout)
	defer cancel()
	r, err := cli.Get(ctx, *prefix, clientv3.WithCountOnly())
	if err != nil {
		fatal(err)
	}
	begun := time.Now()
	if _, err = cli.Compact(ctx, r.Header.Revision); err != nil {
		fatal(fmt.Errorf("compacting: %w", err))
	}
	return time.Since(begun).Seconds() * 1000
}

func main() {
	flag.Parse()
	if *shape == "sync" {
		syncRate()
		return
	}
	if *run == "" {
		*run = strconv.FormatInt(time.Now().Unix()%10000000, 36)
	}
	if *valueSize < 8 {
		*valueSize = 8
	}
	conns := make([]*clientv3.Client, *connections)
	for i := range conns {
		c, err := clientv3.New(clientv3.Config{Endpoints: []string{*endpoint}, DialTimeout: 5 * time.Second, Logger: zap.NewNop(), MaxCallRecvMsgSize: 1 << 30})
		if err != nil {
			fatal(err)
		}
		defer c.Close()
		conns[i] = c
	}
	ws := make([]*worker, *clients)
	for i := range ws {
		ws[i] = &worker{id: i, cli: conns[i%len(conns)], value: make([]byte, *valueSize), rng: rand.New(rand.NewSource(int64(i) + 1))}
		ws[i].rng.Read(ws[i].value)
	}
	var present int
	readsOnly := *shape == "list" || *shape == "count" || *shape == "get"
	if readsOnly && isThere(ws[0]) {
		present = *keys
	} else if *shape != "create" {
		all := preload(ws)
		present = len(all)
		for i, k := range all {
			w := ws[i%len(ws)]
			w.own = append(w.own, k)
		}
	}
	out := map[string]any{"shape": *shape, "clients": *clients, "connections": *connections, "keys": present, "value_size": *valueSize}
	if *label != "" {
		out["label"] = *label
	}
	if *caseName != "" {
		out["case"] = *caseName
	}
	if *shape == "versions" {
		addVersions(ws)
	}
	if *shape == "preload" || *shape == "versions" {
		_, rss := procCPU(*pid)
		out["server_rss_mib"] = rss / 1024
		b, _ := json.Marshal(out)
		fmt.Println(string(b))
		return
	}

	// watch: the watchers first
	var dmu sync.Mutex
	var delivered []uint32
	var wcancel context.CancelFunc = func() {}
	var wgone int64
	sh := *shape
	if sh == "watch" {
		sh = "update"
		if *batch > 1 {
			sh = "burst"
		}
		if *rate == 0 {
			*rate = 100
		}
		var wctx context.Context
		wctx, wcancel = context.WithCancel(clientv3.WithRequireLeader(context.Background()))
		ready := make(chan struct{}, *watchers)
		for i := 0; i < *watchers; i++ {
			c := conns[i%len(conns)]
			// the client puts watches with equal metadata on one gRPC stream of a connection
			cctx := metadata.AppendToOutgoingContext(wctx, "store-load", strconv.Itoa(i%*streams))
			go func() {
				opts := []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithCreatedNotify()}
				if *prevKV {
					opts = append(opts, clientv3.WithPrevKV())
				}
				ch := c.Watch(cctx, *prefix, opts...)
				for r := range ch {
					if r.Created {
						ready <- struct{}{}
						continue
					}
					if r.Err() != nil {
						break
					}
					now := time.Now().UnixNano()
					dmu.Lock()
					for _, e := range r.Events {
						if e.Type == mvccpb.PUT && len(e.Kv.Value) >= 8 {
							delivered = append(delivered, uint32((now-int64(binary.BigEndian.Uint64(e.Kv.Value)))/1000))
						}
					}
					dmu.Unlock()
				}
				atomic.AddInt64(&wgone, 1)
			}()
		}
		dl := time.After(15 * time.Second)
		for n := 0; n < *watchers; n++ {
			select {
			case <-ready:
			case <-dl:
				fatal(fmt.Errorf("only %d of %d watches were created", n, *watchers))
			}
		}
		time.Sleep(500 * time.Millisecond)
	}

	cpu0, _ := procCPU(*pid)
	own0, _ := procCPU(os.Getpid())
	start := time.Now()
	end := start.Add(time.Duration(*seconds * float64(time.Second)))
	var ticket int64 = -1
	var wg sync.WaitGroup
	var compactMs float64
	if *compact {
		wg.Add(1)
		go func() {
			defer wg.Done()
			compactMs = compactNow(conns[0])
		}()
	}
	for _, w := range ws {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				t0 := time.Now()
				if *rate > 0 {
					n := atomic.AddInt64(&ticket, 1)
					t0 = start.Add(time.Duration(float64(n) / *rate * float64(time.Second)))
					if t0.After(end) {
						return
					}
					time.Sleep(time.Until(t0))
				}
				if time.Now().After(end) {
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), *timeout)
				ok, err := w.one(ctx, sh)
				cancel()
				if err == errDone {
					return
				}
				if err != nil {
					w.errs++
					if w.firstErr == "" {
						w.firstErr = err.Error()
					}
					if w.errs > 20 && len(w.lat) == 0 {
						return
					}
					continue
				}
				if !ok {
					w.lost++
					continue
				}
				w.lat = append(w.lat, uint32(time.Since(t0).Microseconds()))
			}
		}()
	}
	wg.Wait()
	el := time.Since(start).Seconds()
	if *shape == "watch" {
		time.Sleep(*drain) // what is delivered late costs as well
	}
	cpu1, rss := procCPU(*pid)
	own1, _ := procCPU(os.Getpid())
	if *shape == "watch" {
		out["watch_streams"] = min(*streams, *watchers)
		out["watchers"], out["watchers_ended"] = *watchers, atomic.LoadInt64(&wgone)
		wcancel()
	}
	var lat []uint32
	var errs, lost int
	var items int64
	for _, w := range ws {
		lat = append(lat, w.lat...)
		errs += w.errs
		lost += w.lost
		items += w.items
		if w.firstErr != "" {
			out["first_error"] = w.firstErr
		}
	}
	sort.Slice(lat, func(i, j int) bool { return lat[i] < lat[j] })
	r1 := func(f float64) float64 { return float64(int64(f*10+0.5)) / 10 }
	out["seconds"] = r1(el)
	out["ops"] = len(lat)
	out["rate"] = r1(float64(len(lat)) / el)
	out["p50_ms"], out["p99_ms"] = pct(lat, 0.5), pct(lat, 0.99)
	if *compact {
		out["compact_ms"] = float64(int64(compactMs*1000+0.5)) / 1000
	}
	out["errors"], out["compare_failed"] = errs, lost
	if items > 0 {
		out["items_per_s"] = r1(float64(items) / el)
	}
	if *pid > 0 && len(lat) > 0 {
		out["cpu_us"] = r1((cpu1 - cpu0) * 1e6 / float64(len(lat)))
		out["server_cores"] = float64(int64((cpu1-cpu0)/el*100+0.5)) / 100
		out["server_rss_mib"] = rss / 1024
	}
	if len(lat) > 0 {
		out["own_cpu_us_per_op"] = r1((own1 - own0) * 1e6 / float64(len(lat)))
	}
	if *shape == "watch" {
		dmu.Lock()
		sort.Slice(delivered, func(i, j int) bool { return delivered[i] < delivered[j] })
		out["events"], out["events_expected"] = len(delivered), len(lat)**watchers*max(*batch, 1)
		out["events_per_s"] = r1(float64(len(delivered)) / el)
		out["deliver_p50_ms"], out["deliver_p99_ms"] = pct(delivered, 0.5), pct(delivered, 0.99)
		if *pid > 0 && len(delivered) > 0 {
			out["server_cpu_us_per_event"] = float64(int64((cpu1-cpu0)*1e8/float64(len(delivered))+0.5)) / 100
			out["own_cpu_us_per_event"] = float64(int64((own1-own0)*1e8/float64(len(delivered))+0.5)) / 100
		}
		dmu.Unlock()
	}
	b, _ := json.Marshal(out)
	fmt.Println(string(b))
}
