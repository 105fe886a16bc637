package main

import (
	"context"
	"fmt"
	"math/rand"
	"time"
)

type faultReport struct {
	kills     int
	down      time.Duration
	rolled    int
	killTimes []time.Duration
}

// injectFaults lets the traffic run for its time and kills the server now and
// then. It returns when the time is over and the server is up.
func injectFaults(ctx context.Context, o *options, srv *server, rec *recorder, g *gate, v *verdicts) (f faultReport) {
	end := time.Now().Add(o.seconds)
	if o.faults == "none" {
		g.open()
		time.Sleep(time.Until(end))
		return f
	}
	g.open()
	wait := min(o.killEvery/2, 4*time.Second)
	for {
		wait += time.Duration(rand.Int63n(int64(time.Second)))
		if time.Until(end) < wait+3*time.Second {
			time.Sleep(time.Until(end))
			break
		}
		time.Sleep(wait)
		wait = o.killEvery - 500*time.Millisecond
		var undo func() error
		if o.sabotage == "rollback" {
			// Forget the last second of acknowledged work, as a store that
			// acknowledges before its log is on disk would.
			u, err := srv.snapshotDir()
			must(err)
			undo = u
			time.Sleep(time.Second)
		}
		g.shut()
		t := time.Now()
		srv.kill()
		f.kills++
		f.killTimes = append(f.killTimes, time.Since(rec.base))
		rec.detach()
		if undo != nil {
			must(undo())
			f.rolled++
		}
		time.Sleep(time.Duration(rand.Int63n(int64(500 * time.Millisecond))))
		if err := srv.launch(); err != nil {
			v.fail("restart", err.Error())
			break
		}
		rev, err := srv.waitReady(ctx, o.startTimeout)
		if err != nil {
			v.fail("restart", fmt.Sprintf("kill %d: %v", f.kills, err))
			break
		}
		f.down += time.Since(t)
		if last := rec.lastRev(); rev < last {
			v.fail("restart-revision", fmt.Sprintf("kill %d: after the restart the store is at revision %d, a watch had seen %d before", f.kills, rev, last))
		}
		if err := rec.attach(); err != nil {
			v.fail("restart", err.Error())
			break
		}
		if !rec.waitFor(rev, 20*time.Second) {
			v.fail("history-complete", fmt.Sprintf("kill %d: 20 s after the restart a watch from revision %d has not reached revision %d", f.kills, rec.lastRev()+1, rev))
		}
		g.open()
	}
	if f.kills > 0 {
		v.passIfUnset("restart", fmt.Sprintf("%d kills", f.kills))
		v.passIfUnset("restart-revision", "the revision never went back")
	}
	return f
}
