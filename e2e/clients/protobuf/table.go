package main

import (
	"fmt"
	"reflect"
	"sort"
	"strconv"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
)

const header = `# The fields of every kind that a request's body may hold, of Kubernetes' own definitions: modules
# k8s.io/api, k8s.io/apimachinery and k8s.io/apiextensions-apiserver v0.36.2. Copyright The Kubernetes
# Authors, licensed under the Apache License, Version 2.0.
# Written by e2e/clients/protobuf (protobuf table); do not edit.
#
# "= VERSION KIND MESSAGE": what a kind's object is. "MESSAGE NUMBER:NAME:TYPE...": the fields of a
# message, by number, with the name that JSON has. Before a type: ! is written even if empty, * is a
# list, % is a map from texts, ^ is a message whose fields are the outer one's own in JSON, | is a
# message of which JSON has one field's value only. Types: s text, b flag, i32 and i64 integer, f64
# float, y bytes, l message around a list of texts, and those written in a way of their own: time,
# microtime, quantity, intorstring, raw (JSON as it is); all others are messages.
`

// Types that JSON writes in a way of their own.
var special = map[reflect.Type]string{
	reflect.TypeOf(metav1.Time{}):          "time",
	reflect.TypeOf(metav1.MicroTime{}):     "microtime",
	reflect.TypeOf(metav1.FieldsV1{}):      "raw",
	reflect.TypeOf(runtime.RawExtension{}): "raw",
	reflect.TypeOf(apiextensions.JSON{}):   "raw",
	reflect.TypeOf(resource.Quantity{}):    "quantity",
	reflect.TypeOf(intstr.IntOrString{}):   "intorstring",
}

// Messages of which JSON has the one field that is set.
var unions = map[reflect.Type]bool{
	reflect.TypeOf(apiextensions.JSONSchemaPropsOrArray{}):       true,
	reflect.TypeOf(apiextensions.JSONSchemaPropsOrBool{}):        true,
	reflect.TypeOf(apiextensions.JSONSchemaPropsOrStringArray{}): true,
}

func table() string {
	var out strings.Builder
	out.WriteString(header)
	messages := map[string]string{}
	eachKind(func(version, kind string, empty runtime.Object) {
		root := reflect.TypeOf(empty).Elem()
		describe(root, messages)
		fmt.Fprintf(&out, "= %s %s %s\n", version, kind, name(root))
	})
	var names []string
	for name := range messages {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Fprintf(&out, "%s%s\n", name, messages[name])
	}
	return out.String()
}

// name is the last two parts of a type's package, and its own name.
func name(t reflect.Type) string {
	parts := strings.Split(t.PkgPath(), "/")
	return strings.Join(parts[len(parts)-2:], "/") + "." + t.Name()
}

func describe(t reflect.Type, messages map[string]string) {
	if _, known := messages[name(t)]; known {
		return
	}
	messages[name(t)] = ""
	fields := map[int]string{}
	for i := range t.NumField() {
		field := t.Field(i)
		wire, inMessage := field.Tag.Lookup("protobuf")
		if !inMessage || wire == "-" {
			// Kind and version travel in the envelope.
			if field.Type != reflect.TypeOf(metav1.TypeMeta{}) && field.Tag.Get("json") != "-" && !unions[t] {
				check(fmt.Errorf("%s.%s is in JSON and not in protobuf", name(t), field.Name))
			}
			continue
		}
		number, err := strconv.Atoi(strings.Split(wire, ",")[1])
		check(err)
		jsonName, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		word := kindOf(t, field, options, messages)
		if jsonName == "" {
			jsonName = field.Name
		}
		if strings.ContainsAny(jsonName, ": ") {
			check(fmt.Errorf("%s: a name that the table cannot hold: %q", name(t), jsonName))
		}
		fields[number] = fmt.Sprintf(" %d:%s:%s", number, jsonName, word)
	}
	var numbers []int
	for number := range fields {
		numbers = append(numbers, number)
	}
	sort.Ints(numbers)
	var line strings.Builder
	for _, number := range numbers {
		line.WriteString(fields[number])
	}
	messages[name(t)] = line.String()
}

// kindOf is the type of a field in the table's words.
func kindOf(t reflect.Type, field reflect.StructField, options string, messages map[string]string) string {
	inner, mark := field.Type, ""
	has := func(option string) bool { return strings.Contains(","+options+",", ","+option+",") }
	switch {
	case unions[t]:
		// A flag that is not set means no.
		if inner.Kind() == reflect.Slice {
			inner, mark = inner.Elem(), "*"
		} else {
			mark = "!"
		}
	case has("inline"):
		mark = "^"
	case inner.Kind() == reflect.Map:
		if inner.Key().Kind() != reflect.String {
			check(fmt.Errorf("%s.%s: keys that are no texts", name(t), field.Name))
		}
		inner, mark = inner.Elem(), "%"
		if inner.Kind() == reflect.Slice && inner.Elem().Kind() == reflect.String {
			return mark + "l"
		}
	case inner.Kind() == reflect.Slice && inner.Elem().Kind() != reflect.Uint8:
		inner, mark = inner.Elem(), "*"
	case inner.Kind() == reflect.Pointer:
		mark = "!"
	case inner.Kind() == reflect.Struct && !has("omitzero"), !has("omitempty") && !has("omitzero"):
		// Go takes no structure for empty.
		mark = "!"
	}
	if inner.Kind() == reflect.Pointer {
		inner = inner.Elem()
	}
	if word, known := special[inner]; known {
		return mark + word
	}
	switch inner.Kind() {
	case reflect.String:
		return mark + "s"
	case reflect.Bool:
		return mark + "b"
	case reflect.Int32:
		return mark + "i32"
	case reflect.Int64:
		return mark + "i64"
	case reflect.Float64:
		return mark + "f64"
	case reflect.Slice:
		if inner.Elem().Kind() == reflect.Uint8 {
			return mark + "y"
		}
	case reflect.Struct:
		describe(inner, messages)
		if unions[inner] {
			mark += "|"
		}
		return mark + name(inner)
	}
	check(fmt.Errorf("%s.%s: no word for %s", name(t), field.Name, field.Type))
	return ""
}
