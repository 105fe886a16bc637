package main

import (
	"context"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/tests/v3/robustness/client"
)

// collector is the suite's long watch: all keys from revision 2 to the end,
// resumed when it breaks, asking for progress now and then. Ours only because
// the suite's version does not end when a store never delivers the last event,
// and asks for progress only when idle, which is seldom.
type collector struct {
	want, last atomic.Int64
	stop       context.CancelFunc
	done       chan struct{}
}

func startCollector(ctx context.Context, set *client.ClientSet, endpoint string) (*collector, error) {
	c, err := set.NewClient([]string{endpoint})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	col := &collector{stop: cancel, done: make(chan struct{})}
	col.last.Store(1)
	go func() {
		defer close(col.done)
		for ctx.Err() == nil {
			wctx, wcancel := context.WithCancel(ctx)
			ch := c.Watch(wctx, "", col.last.Load()+1, true, true, false)
			ask := time.NewTicker(200 * time.Millisecond)
			for open := true; open; {
				if w := col.want.Load(); w > 0 && col.last.Load() >= w {
					ask.Stop()
					wcancel()
					return
				}
				select {
				case <-ask.C:
					c.RequestProgress(wctx)
				case resp, ok := <-ch:
					if !ok {
						open = false
						break
					}
					if n := len(resp.Events); n > 0 {
						col.last.Store(resp.Events[n-1].Kv.ModRevision)
					}
					if resp.Err() != nil {
						if resp.CompactRevision > col.last.Load() {
							col.last.Store(resp.CompactRevision)
						}
						open = false
					}
				}
			}
			ask.Stop()
			wcancel()
			select {
			case <-time.After(20 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return col, nil
}

func (c *collector) seen() int64 { return c.last.Load() }

func (c *collector) finish(rev int64, d time.Duration) bool {
	c.want.Store(rev)
	select {
	case <-c.done:
	case <-time.After(d):
	}
	c.stop()
	<-c.done
	return c.last.Load() >= rev
}
