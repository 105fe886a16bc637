// Command loop is the acceptance suite's client: client-go on one connection creates, changes and
// deletes objects while a watch on that same connection records what it is shown. It goes on over
// lost connections, settles every write whose outcome it did not learn, and writes all it knows to
// two files of JSON lines. It judges nothing: the suite does.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	typed "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/clientcmd"
)

// A write that the client knows the outcome of.
type write struct {
	Op string `json:"op"`
	// Name of the object.
	Name string `json:"name"`
	// ResourceVersion the answer carried; empty for a delete, whose answer has none.
	ResourceVersion string `json:"rv,omitempty"`
	// Settled: the answer was lost, and a later read or refusal showed that the write had happened.
	Settled  bool `json:"settled,omitempty"`
	Attempts int  `json:"attempts"`
}

// What the watch was shown.
type event struct {
	Type            string `json:"type"`
	Name            string `json:"name"`
	ResourceVersion string `json:"rv"`
	Value           string `json:"value"`
	Session         int    `json:"session"`
}

type lines struct {
	mu  sync.Mutex
	out *bufio.Writer
}

func (l *lines) put(v any) {
	text, err := json.Marshal(v)
	if err != nil {
		fatal("encode: %v", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.out.Write(text)
	l.out.WriteByte('\n')
	if err := l.out.Flush(); err != nil {
		fatal("write: %v", err)
	}
}

func create(path string) *lines {
	file, err := os.Create(path)
	if err != nil {
		fatal("%v", err)
	}
	return &lines{out: bufio.NewWriter(file)}
}

func fatal(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "loop: "+format+"\n", args...)
	os.Exit(1)
}

const sentinel = "zz-end"

type churn struct {
	api     typed.ConfigMapInterface
	writes  *lines
	pause   time.Duration
	give    time.Duration
	unclear atomic.Int64
}

// until repeats try until it says done, waiting between tries, and gives up after c.give.
func (c *churn) until(ctx context.Context, what string, try func(attempt int) (bool, error)) {
	deadline := time.Now().Add(c.give)
	for attempt := 1; ; attempt++ {
		done, err := try(attempt)
		if done {
			return
		}
		c.unclear.Add(1)
		if time.Now().After(deadline) {
			fatal("%s: gave up after %s, last error: %v", what, c.give, err)
		}
		select {
		case <-ctx.Done():
			fatal("%s: %v", what, ctx.Err())
		case <-time.After(c.pause):
		}
	}
}

func (c *churn) create(ctx context.Context, name string) *corev1.ConfigMap {
	var made *corev1.ConfigMap
	want := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"v": "1"}}
	c.until(ctx, "create "+name, func(attempt int) (bool, error) {
		got, err := c.api.Create(ctx, want, metav1.CreateOptions{})
		settled := false
		if apierrors.IsAlreadyExists(err) {
			if attempt == 1 {
				fatal("create %s: exists before it was created", name)
			}
			got, err = c.api.Get(ctx, name, metav1.GetOptions{})
			settled = true
		}
		if err != nil {
			return false, err
		}
		made = got
		c.writes.put(write{Op: "create", Name: name, ResourceVersion: got.ResourceVersion, Settled: settled, Attempts: attempt})
		return true, nil
	})
	return made
}

func (c *churn) update(ctx context.Context, object *corev1.ConfigMap, value string) *corev1.ConfigMap {
	name := object.Name
	want := object.DeepCopy()
	want.Data = map[string]string{"v": value}
	var made *corev1.ConfigMap
	c.until(ctx, "update "+name, func(attempt int) (bool, error) {
		got, err := c.api.Update(ctx, want, metav1.UpdateOptions{})
		settled := false
		if apierrors.IsConflict(err) {
			if attempt == 1 {
				fatal("update %s: conflict though nobody else writes it: %v", name, err)
			}
			got, err = c.api.Get(ctx, name, metav1.GetOptions{})
			if err == nil && got.Data["v"] != value {
				fatal("update %s: conflict, yet the object holds %q and not %q", name, got.Data["v"], value)
			}
			settled = true
		}
		if err != nil {
			return false, err
		}
		made = got
		c.writes.put(write{Op: "update", Name: name, ResourceVersion: got.ResourceVersion, Settled: settled, Attempts: attempt})
		return true, nil
	})
	return made
}

func (c *churn) delete(ctx context.Context, object *corev1.ConfigMap) {
	name := object.Name
	c.until(ctx, "delete "+name, func(attempt int) (bool, error) {
		options := metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(object.UID))}
		err := c.api.Delete(ctx, name, options)
		settled := false
		if apierrors.IsNotFound(err) {
			if attempt == 1 {
				fatal("delete %s: an acknowledged object is gone", name)
			}
			settled, err = true, nil
		}
		if err != nil {
			return false, err
		}
		c.writes.put(write{Op: "delete", Name: name, Settled: settled, Attempts: attempt})
		return true, nil
	})
}

// follow watches from version on and over every end of the stream, until the sentinel is seen.
func follow(ctx context.Context, api typed.ConfigMapInterface, version string, events *lines) error {
	for session := 1; ; session++ {
		stream, err := api.Watch(ctx, metav1.ListOptions{ResourceVersion: version, AllowWatchBookmarks: true})
		if err != nil {
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return fmt.Errorf("watch from %s: history is gone: %w", version, err)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			time.Sleep(50 * time.Millisecond)
			continue
		}
		done := false
		for got := range stream.ResultChan() {
			if got.Type == watch.Error {
				err := apierrors.FromObject(got.Object)
				if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
					return fmt.Errorf("watch from %s: history is gone: %w", version, err)
				}
				break
			}
			object, ok := got.Object.(*corev1.ConfigMap)
			if !ok {
				return errors.New("watch: an event carries something else than a ConfigMap")
			}
			version = object.ResourceVersion
			if got.Type == watch.Bookmark {
				continue
			}
			events.put(event{Type: string(got.Type), Name: object.Name, ResourceVersion: version, Value: object.Data["v"], Session: session})
			done = object.Name == sentinel
			if done {
				break
			}
		}
		stream.Stop()
		if done {
			return nil
		}
	}
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file")
	namespace := flag.String("namespace", "default", "namespace to work in")
	objects := flag.Int("objects", 2000, "objects to create, change and delete")
	spread := flag.Duration("spread", 2*time.Minute, "time over which the work is spread")
	workers := flag.Int("workers", 8, "parallel writers")
	writesTo := flag.String("writes", "writes.jsonl", "file for known outcomes")
	eventsTo := flag.String("events", "events.jsonl", "file for what the watch saw")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fatal("%v", err)
	}
	config.QPS = -1
	config.Timeout = 0
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fatal("%v", err)
	}
	api := client.CoreV1().ConfigMaps(*namespace)
	ctx, cancel := context.WithTimeout(context.Background(), *spread+5*time.Minute)
	defer cancel()

	work := &churn{api: api, writes: create(*writesTo), pause: 50 * time.Millisecond, give: time.Minute}
	events := create(*eventsTo)
	list, err := api.List(ctx, metav1.ListOptions{})
	if err != nil {
		fatal("first list: %v", err)
	}
	watched := make(chan error, 1)
	go func() { watched <- follow(ctx, api, list.ResourceVersion, events) }()

	// One object starts each tick, so that the work lasts as long as the faults do.
	queue := make(chan int)
	var all sync.WaitGroup
	for range *workers {
		all.Add(1)
		go func() {
			defer all.Done()
			for i := range queue {
				object := work.create(ctx, fmt.Sprintf("loop-%05d", i))
				object = work.update(ctx, object, "2")
				work.delete(ctx, object)
			}
		}()
	}
	tick := time.NewTicker(*spread / time.Duration(*objects))
	started := time.Now()
	for i := range *objects {
		<-tick.C
		queue <- i
		if (i+1)%200 == 0 {
			fmt.Fprintf(os.Stderr, "loop: %d of %d objects after %s, %d tries without an outcome\n",
				i+1, *objects, time.Since(started).Round(time.Second), work.unclear.Load())
		}
	}
	close(queue)
	all.Wait()
	// Left standing, so that the end state is not merely empty.
	for i := range 20 {
		object := work.create(ctx, fmt.Sprintf("stay-%02d", i))
		work.update(ctx, object, "kept")
	}
	work.create(ctx, sentinel)
	select {
	case err := <-watched:
		if err != nil {
			fatal("%v", err)
		}
	case <-time.After(time.Minute):
		fatal("the watch did not see the last object within a minute")
	}
	fmt.Fprintf(os.Stderr, "loop: done in %s, %d tries without an outcome\n", time.Since(started).Round(time.Second), work.unclear.Load())
}
