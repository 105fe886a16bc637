// Command informer is a controller's eyes without the controller: client-go's own informers over
// ConfigMaps, over a selection of them and over a custom kind, in one namespace, while the same
// process makes, changes, relabels and deletes their objects. The server may go away and come back
// meanwhile. At the end each informer's store must become equal to a fresh list, object by object
// and version by version; anything else is said and ends it with 1.
//
// Whether the informers stream their lists is client-go's switch, KUBE_FEATURE_WatchListClient.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand"
	"net/http"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

func fatal(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "informer: "+format+"\n", args...)
	os.Exit(1)
}

var gadgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gadgets"}

const selection = "half=even"

// What the informers ask for, by the form of the request.
type counter struct {
	next                     http.RoundTripper
	lists, watches, streamed atomic.Int64
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	query := r.URL.Query()
	named := strings.Count(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case query.Get("sendInitialEvents") == "true":
		c.streamed.Add(1)
	case query.Get("watch") != "":
		c.watches.Add(1)
	case r.Method == http.MethodGet && (strings.HasSuffix(r.URL.Path, "/configmaps") || strings.HasSuffix(r.URL.Path, "/gadgets")) && named > 0:
		c.lists.Add(1)
	}
	return c.next.RoundTrip(r)
}

// One informer and the list it is held against.
type eye struct {
	name     string
	informer cache.SharedIndexInformer
	list     func(context.Context) ([]metav1.Object, error)

	mu    sync.Mutex
	known map[string]uint64
	// Told is how many events it had; faults are those that no order of changes explains.
	told   int
	faults []string
}

func version(o metav1.Object) uint64 {
	n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		fatal("resource version of %s: %v", o.GetName(), err)
	}
	return n
}

func object(o any) metav1.Object {
	if gone, is := o.(cache.DeletedFinalStateUnknown); is {
		o = gone.Obj
	}
	accessor, err := meta.Accessor(o)
	if err != nil {
		fatal("an event carries no object: %v", err)
	}
	return accessor
}

// seen checks that an object never goes back in time.
func (e *eye) seen(what string, any any) {
	o := object(any)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told++
	now, before := version(o), e.known[o.GetName()]
	if now < before {
		e.faults = append(e.faults, fmt.Sprintf("%s of %s: version %d after %d", what, o.GetName(), now, before))
	}
	e.known[o.GetName()] = now
}

func (e *eye) follow() {
	e.known = map[string]uint64{}
	_, err := e.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { e.seen("add", o) },
		UpdateFunc: func(_, o any) { e.seen("update", o) },
		DeleteFunc: func(o any) { e.seen("delete", o) },
	})
	if err != nil {
		fatal("%v", err)
	}
}

func shown(objects []metav1.Object) []string {
	lines := make([]string, 0, len(objects))
	for _, o := range objects {
		lines = append(lines, fmt.Sprintf("%s uid=%s rv=%s labels=%v", o.GetName(), o.GetUID(), o.GetResourceVersion(), o.GetLabels()))
	}
	sort.Strings(lines)
	return lines
}

func (e *eye) stored() []string {
	var objects []metav1.Object
	for _, o := range e.informer.GetStore().List() {
		objects = append(objects, object(o))
	}
	return shown(objects)
}

// differs lists what only one of two sorted lists holds.
func differs(store, list []string) string {
	in := func(all []string, one string) bool {
		at := sort.SearchStrings(all, one)
		return at < len(all) && all[at] == one
	}
	var out []string
	for _, one := range store {
		if !in(list, one) {
			out = append(out, "only in the store: "+one)
		}
	}
	for _, one := range list {
		if !in(store, one) {
			out = append(out, "only in the list: "+one)
		}
	}
	return strings.Join(out, "\n")
}

// settle waits until the store is what a fresh list says.
func (e *eye) settle(ctx context.Context, within time.Duration) int {
	deadline := time.Now().Add(within)
	for {
		fresh, err := e.list(ctx)
		difference := fmt.Sprint(err)
		if err == nil {
			list := shown(fresh)
			difference = differs(e.stored(), list)
			if difference == "" {
				return len(list)
			}
		}
		if time.Now().After(deadline) {
			fatal("%s: not what a fresh list says after %s:\n%s", e.name, within, difference)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// Writers that learn of nothing: the fresh list is the truth in the end.
type churn struct {
	core     kubernetes.Interface
	custom   dynamic.Interface
	space    string
	left     atomic.Int64
	written  atomic.Int64
	failures atomic.Int64
}

func (c *churn) one(ctx context.Context, random *rand.Rand) error {
	name := fmt.Sprintf("o-%02d", random.Intn(40))
	half := map[bool]string{true: "even", false: "odd"}[random.Intn(2) == 0]
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{"half":%q}}}`, half)
	if random.Intn(2) == 0 {
		api := c.core.CoreV1().ConfigMaps(c.space)
		switch random.Intn(4) {
		case 0:
			return api.Delete(ctx, name, metav1.DeleteOptions{})
		case 1:
			_, err := api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		default:
			made := &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"half": half}},
				Data:       map[string]string{"n": fmt.Sprint(random.Int())},
			}
			_, err := api.Create(ctx, made, metav1.CreateOptions{})
			return err
		}
	}
	api := c.custom.Resource(gadgets).Namespace(c.space)
	switch random.Intn(4) {
	case 0:
		return api.Delete(ctx, name, metav1.DeleteOptions{})
	case 1:
		_, err := api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	default:
		made := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Gadget",
			"metadata": map[string]any{"name": name},
			"spec":     map[string]any{"size": random.Int63n(1000)},
		}}
		_, err := api.Create(ctx, made, metav1.CreateOptions{})
		return err
	}
}

func (c *churn) run(ctx context.Context, seed int64) {
	random := rand.New(rand.NewSource(seed))
	for c.left.Add(-1) >= 0 {
		for {
			err := c.one(ctx, random)
			// A name that is taken or missing is as good an outcome as any: the server answered.
			if err == nil || isAnswer(err) {
				break
			}
			c.failures.Add(1)
			time.Sleep(50 * time.Millisecond)
		}
		if n := c.written.Add(1); n%100 == 0 {
			fmt.Printf("written %d\n", n)
		}
	}
}

func isAnswer(err error) bool {
	status, is := err.(interface{ Status() metav1.Status })
	return is && status.Status().Code < 500 && status.Status().Code != 0
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file")
	space := flag.String("namespace", "default", "namespace to work in")
	writes := flag.Int("writes", 1000, "writes to make")
	within := flag.Duration("within", time.Minute, "how long a store may differ from a fresh list in the end")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fatal("%v", err)
	}
	config.QPS = -1
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()

	// The informers have a connection of their own, and it alone is counted.
	asked := &counter{}
	watching := rest.CopyConfig(config)
	watching.Wrap(func(next http.RoundTripper) http.RoundTripper {
		asked.next = next
		return asked
	})
	eyes := look(kubernetes.NewForConfigOrDie(watching), dynamic.NewForConfigOrDie(watching), config, *space)
	for _, e := range eyes {
		e.follow()
		go e.informer.RunWithContext(ctx)
	}
	for _, e := range eyes {
		if !cache.WaitForCacheSync(ctx.Done(), e.informer.HasSynced) {
			fatal("%s: never in step", e.name)
		}
	}
	fmt.Println("in step")

	work := &churn{core: kubernetes.NewForConfigOrDie(config), custom: dynamic.NewForConfigOrDie(config), space: *space}
	work.left.Store(int64(*writes))
	var all sync.WaitGroup
	for seed := range int64(4) {
		all.Go(func() { work.run(ctx, seed) })
	}
	all.Wait()
	for _, e := range eyes {
		n := e.settle(ctx, *within)
		e.mu.Lock()
		if len(e.faults) > 0 {
			fatal("%s: %s", e.name, strings.Join(e.faults, "; "))
		}
		if e.told == 0 || n == 0 {
			fatal("%s: saw nothing, which shows nothing", e.name)
		}
		fmt.Printf("%s: %d objects after %d events\n", e.name, n, e.told)
		e.mu.Unlock()
	}
	fmt.Printf("done lists=%d watches=%d streamed=%d failures=%d\n",
		asked.lists.Load(), asked.watches.Load(), asked.streamed.Load(), work.failures.Load())
}

func look(core kubernetes.Interface, custom dynamic.Interface, plain *rest.Config, space string) []*eye {
	fresh, freshCustom := kubernetes.NewForConfigOrDie(plain), dynamic.NewForConfigOrDie(plain)
	configmaps := func(selector string) func(context.Context) ([]metav1.Object, error) {
		return func(ctx context.Context) ([]metav1.Object, error) {
			list, err := fresh.CoreV1().ConfigMaps(space).List(ctx, metav1.ListOptions{LabelSelector: selector})
			if err != nil {
				return nil, err
			}
			objects := make([]metav1.Object, 0, len(list.Items))
			for i := range list.Items {
				objects = append(objects, &list.Items[i])
			}
			return objects, nil
		}
	}
	selected := func(options *metav1.ListOptions) { options.LabelSelector = selection }
	customs := func(ctx context.Context) ([]metav1.Object, error) {
		list, err := freshCustom.Resource(gadgets).Namespace(space).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		objects := make([]metav1.Object, 0, len(list.Items))
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
		return objects, nil
	}
	return []*eye{
		{name: "configmaps", list: configmaps(""),
			informer: coreinformers.NewFilteredConfigMapInformer(core, space, 0, cache.Indexers{}, nil)},
		{name: "selected configmaps", list: configmaps(selection),
			informer: coreinformers.NewFilteredConfigMapInformer(core, space, 0, cache.Indexers{}, selected)},
		{name: "gadgets", list: customs,
			informer: dynamicinformer.NewFilteredDynamicInformer(custom, gadgets, space, 0, cache.Indexers{}, nil).Informer()},
	}
}
