package main

import (
	_ "embed"
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
)

//go:embed samples.yaml
var manifests string

// samples are objects such as people write.
func samples() []runtime.Object {
	var all []runtime.Object
	for _, text := range strings.Split(manifests, "\n---\n") {
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
		check(err)
		all = append(all, object)
	}
	return all
}

// A filling is how much of an object is set.
type filling string

const (
	// Nothing: what is written anyway is the question.
	empty filling = "empty"
	// Every pointer, list and map, with nothing in what it holds.
	pointed filling = "pointed"
	// Everything.
	full filling = "full"
)

func (f filling) fill(object runtime.Object) {
	if f == empty {
		return
	}
	value := reflect.ValueOf(object).Elem()
	filler := filler{full: f == full, root: value.Type(), within: map[reflect.Type]int{}}
	filler.fill(value)
}

type filler struct {
	full bool
	// Pods are filled within a Pod only: half of all kinds have a template of them.
	root reflect.Type
	// How often a type holds itself just now.
	within map[reflect.Type]int
	// Makes values differ, so that none passes for another.
	count int64
}

func (f *filler) fill(v reflect.Value) {
	if f.fillSpecial(v) {
		return
	}
	switch v.Kind() {
	case reflect.String:
		if f.full {
			v.SetString(f.text())
		}
	case reflect.Bool:
		v.SetBool(f.full)
	case reflect.Int32, reflect.Int64:
		if f.full {
			v.SetInt(f.next())
		}
	case reflect.Float64:
		if f.full {
			v.SetFloat(float64(f.next()) + 0.5)
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte{})
			if f.full {
				v.SetBytes([]byte{0xff, byte(f.next()), 'x'})
			}
			return
		}
		// One message is enough: the samples have lists of several.
		length := 1
		if v.Type().Elem().Kind() != reflect.Struct {
			length = 2
		}
		v.Set(reflect.MakeSlice(v.Type(), length, length))
		for i := range length {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		key.SetString(f.text())
		f.fill(value)
		v.SetMapIndex(key, value)
	case reflect.Struct:
		f.fillFields(v)
	default:
		check(fmt.Errorf("nothing to fill a %s with", v.Type()))
	}
}

func (f *filler) fillFields(v reflect.Value) {
	kind := v.Type()
	isOtherPod := kind == reflect.TypeOf(corev1.PodSpec{}) && f.root != reflect.TypeOf(corev1.Pod{})
	if isOtherPod || f.within[kind] == 2 {
		return
	}
	f.within[kind]++
	for i := range v.NumField() {
		if wire := kind.Field(i).Tag.Get("protobuf"); wire != "" && wire != "-" {
			f.fill(v.Field(i))
		}
	}
	f.within[kind]--
}

// fillSpecial fills what JSON writes in a way of its own, and says whether v was such.
func (f *filler) fillSpecial(v reflect.Value) bool {
	if _, known := special[v.Type()]; !known {
		return false
	}
	if !f.full {
		return true
	}
	when := time.Date(2024, 2, 29, 23, 59, int(f.next()%60), 123456789, time.UTC)
	switch to := v.Addr().Interface().(type) {
	case *metav1.Time:
		*to = metav1.NewTime(when)
	case *metav1.MicroTime:
		*to = metav1.NewMicroTime(when)
	case *metav1.FieldsV1:
		to.Raw = fmt.Appendf(nil, `{"f:%s":{}}`, f.text())
	case *runtime.RawExtension:
		to.Raw = fmt.Appendf(nil, `{"raw":["%s",12345678901,null,{"<&>":true}]}`, f.text())
	case *apiextensions.JSON:
		to.Raw = fmt.Appendf(nil, `{"json":"%s"}`, f.text())
	case *resource.Quantity:
		*to = resource.MustParse(fmt.Sprintf("%d500m", f.next()))
	case *intstr.IntOrString:
		*to = intstr.FromInt32(int32(f.next()))
		if f.count%2 == 0 {
			*to = intstr.FromString(f.text())
		}
	}
	return true
}

func (f *filler) next() int64 {
	f.count++
	return f.count
}

func (f *filler) text() string { return fmt.Sprintf("s%d", f.next()) }
