// Command follower follows Nodes, Pods and GPUClasses with client-go informers and tells every version that it sees
// of them, one JSON object a line, with the fields that the figures of a class depend on.
//
// The caller judges by it. It ends when its standard input does.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log"
	"os"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// longest is how long it runs when nobody ends it.
const longest = 4 * time.Hour

var resources = []schema.GroupVersionResource{
	{Version: "v1", Resource: "nodes"},
	{Version: "v1", Resource: "pods"},
	{Group: "cozystack.io", Version: "v1alpha1", Resource: "gpuclasses"},
}

// line is what is told. Type is "synced", "add", "update", "delete", or "lost": gone, nobody knows at which version.
type line struct {
	Type            string         `json:"type"`
	Resource        string         `json:"resource,omitempty"`
	ResourceVersion string         `json:"resourceVersion,omitempty"`
	Object          map[string]any `json:"object,omitempty"`
}

var telling sync.Mutex

func tell(l line) {
	telling.Lock()
	defer telling.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(l); err != nil {
		log.Fatal(err)
	}
}

func told(kind, resource string, object any) {
	if gone, isGone := object.(cache.DeletedFinalStateUnknown); isGone {
		kind, object = "lost", gone.Obj
	}
	whole, isWhole := object.(*unstructured.Unstructured)
	if !isWhole {
		log.Fatalf("an object of type %T", object)
	}
	fields := map[string]any{"metadata": map[string]any{"name": whole.GetName(), "namespace": whole.GetNamespace()}}
	for _, field := range []string{"spec", "status"} {
		if value, found := whole.Object[field]; found {
			fields[field] = value
		}
	}
	tell(line{Type: kind, Resource: resource, ResourceVersion: whole.GetResourceVersion(), Object: fields})
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file of the cluster and the user")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	for _, resource := range resources {
		name := resource.Resource
		_, err := factory.ForResource(resource).Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { told("add", name, object) },
			UpdateFunc: func(_, object any) { told("update", name, object) },
			DeleteFunc: func(object any) { told("delete", name, object) },
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	tell(line{Type: "synced"})
	<-ctx.Done()
}
