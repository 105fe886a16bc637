// Command protobuf writes what the gateway's reader of protobuf bodies is made of and held against,
// with Kubernetes' own types and encoders.
//
//	protobuf table          the messages and fields of every kind served: gateway/src/api/protobuf/fields.txt
//	protobuf golden FOLDER  objects in both encodings: gateway/fixtures/protobuf
//	protobuf read FILE      what a client makes of a protobuf answer of the gateway, as JSON
//
// Both are committed, as the gateway is built without Go; the suite protobuf writes them anew and
// compares.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"
)

// What may come as a request's body, by group and version.
var served = []struct{ version, kinds string }{
	{"v1", "ConfigMap DeleteOptions Endpoints Event LimitRange Namespace Node PersistentVolume " +
		"PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount"},
	{"apiextensions.k8s.io/v1", "CustomResourceDefinition"},
	{"apps/v1", "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet"},
	{"authentication.k8s.io/v1", "SelfSubjectReview TokenReview"},
	{"authorization.k8s.io/v1", "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview"},
	{"autoscaling/v1", "Scale"},
	{"autoscaling/v2", "HorizontalPodAutoscaler"},
	{"batch/v1", "CronJob Job"},
	{"coordination.k8s.io/v1", "Lease"},
	{"discovery.k8s.io/v1", "EndpointSlice"},
	{"networking.k8s.io/v1", "Ingress IngressClass NetworkPolicy"},
	{"node.k8s.io/v1", "RuntimeClass"},
	{"policy/v1", "Eviction PodDisruptionBudget"},
	{"rbac.authorization.k8s.io/v1", "ClusterRole ClusterRoleBinding Role RoleBinding"},
	{"scheduling.k8s.io/v1", "PriorityClass"},
	{"storage.k8s.io/v1", "CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment"},
}

// eachKind calls do with an empty object of every kind served, in a fixed order.
func eachKind(do func(version, kind string, empty runtime.Object)) {
	for _, row := range served {
		for _, kind := range strings.Fields(row.kinds) {
			empty, err := scheme.Scheme.New(schema.FromAPIVersionAndKind(row.version, kind))
			check(err)
			do(row.version, kind, empty)
		}
	}
}

// encode writes an object as a typed client does: in the envelope, and as JSON.
func encode(object runtime.Object) (proto, text []byte) {
	gvk := object.GetObjectKind().GroupVersionKind()
	var out bytes.Buffer
	encoder := scheme.Codecs.EncoderForVersion(protobuf.NewSerializer(scheme.Scheme, scheme.Scheme), gvk.GroupVersion())
	check(encoder.Encode(object, &out))
	// The codec takes the kind away once it has written it.
	object.GetObjectKind().SetGroupVersionKind(gvk)
	text, err := json.Marshal(object)
	check(err)
	return out.Bytes(), text
}

func golden(folder string) {
	check(os.MkdirAll(folder, 0o755))
	for _, object := range samples() {
		proto, text := encode(object)
		name := filepath.Join(folder, strings.ToLower(object.GetObjectKind().GroupVersionKind().Kind))
		check(os.WriteFile(name+".pb", proto, 0o644))
		var indented bytes.Buffer
		check(json.Indent(&indented, text, "", "  "))
		indented.WriteByte('\n')
		check(os.WriteFile(name+".json", indented.Bytes(), 0o644))
	}
	// One line an object: its name, both encodings.
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for _, filling := range []filling{empty, pointed, full} {
		eachKind(func(version, kind string, object runtime.Object) {
			filling.fill(object)
			object.GetObjectKind().SetGroupVersionKind(schema.FromAPIVersionAndKind(version, kind))
			proto, text := encode(object)
			check(encoder.Encode(struct {
				Name     string          `json:"name"`
				Protobuf []byte          `json:"protobuf"`
				JSON     json.RawMessage `json:"json"`
			}{string(filling) + " " + version + " " + kind, proto, text}))
		})
	}
	check(os.WriteFile(filepath.Join(folder, "every.jsonl"), lines.Bytes(), 0o644))
}

// read decodes as a typed client does, which knows the encoding by its first bytes.
func read(file string) {
	answer, err := os.ReadFile(file)
	check(err)
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(answer, nil, nil)
	check(err)
	text, err := json.Marshal(object)
	check(err)
	_, err = os.Stdout.Write(text)
	check(err)
}

func check(err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "protobuf: %v\n", err)
		os.Exit(1)
	}
}

func main() {
	check(apiextensions.AddToScheme(scheme.Scheme))
	switch {
	case len(os.Args) == 2 && os.Args[1] == "table":
		_, err := io.WriteString(os.Stdout, table())
		check(err)
	case len(os.Args) == 3 && os.Args[1] == "golden":
		golden(os.Args[2])
	case len(os.Args) == 3 && os.Args[1] == "read":
		read(os.Args[2])
	default:
		fmt.Fprintln(os.Stderr, "usage: protobuf table | protobuf golden FOLDER | protobuf read FILE")
		os.Exit(2)
	}
}
