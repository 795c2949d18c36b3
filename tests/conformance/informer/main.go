// Command informer follows one resource with a client-go informer and tells what it sees, one JSON object a line.
//
// The caller makes the changes and judges. It ends when its standard input does, and then tells what the informer's
// store holds. WatchList is switched by client-go's own variable, KUBE_FEATURE_WatchListClient.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"os"
	"strconv"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/features"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// longest is how long it runs when nobody ends it.
const longest = 5 * time.Minute

var served = schema.GroupVersion{Group: "catalog.cozystack.io", Version: "v1alpha1"}

// figures is where each resource has its figure.
var figures = map[string][]string{"gpuclasses": {"status", "free"}, "gpuoffers": {"orderable"}}

// line is what is told. Type is "request", "synced", "add", "update", "delete", "stored" or "end".
type line struct {
	Type      string            `json:"type"`
	Name      string            `json:"name,omitempty"`
	Labels    map[string]string `json:"labels,omitempty"`
	Figure    *int64            `json:"figure,omitempty"`
	Query     map[string]string `json:"query,omitempty"`
	Code      int               `json:"code,omitempty"`
	WatchList bool              `json:"watchList,omitempty"`
}

var telling sync.Mutex

func tell(l line) {
	telling.Lock()
	defer telling.Unlock()
	if err := json.NewEncoder(os.Stdout).Encode(l); err != nil {
		log.Fatal(err)
	}
}

// observer tells of each request, and shortens watches.
type observer struct {
	next         http.RoundTripper
	watchSeconds int
}

func (o observer) RoundTrip(request *http.Request) (*http.Response, error) {
	query := request.URL.Query()
	if query.Get("watch") == "true" && o.watchSeconds > 0 {
		query.Set("timeoutSeconds", strconv.Itoa(o.watchSeconds))
		request = request.Clone(request.Context())
		request.URL.RawQuery = query.Encode()
	}
	told := line{Type: "request", Query: map[string]string{}}
	for key := range query {
		told.Query[key] = query.Get(key)
	}
	response, err := o.next.RoundTrip(request)
	if response != nil {
		told.Code = response.StatusCode
	}
	tell(told)
	return response, err
}

// described is an object as it is told of; the metadata informer's objects have no figures.
func described(kind string, object any, figure []string) line {
	if gone, isGone := object.(cache.DeletedFinalStateUnknown); isGone {
		object = gone.Obj
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		log.Fatal(err)
	}
	told := line{Type: kind, Name: accessor.GetName(), Labels: accessor.GetLabels()}
	if whole, isWhole := object.(*unstructured.Unstructured); isWhole {
		if value, found, _ := unstructured.NestedInt64(whole.Object, figure...); found {
			told.Figure = &value
		}
	}
	return told
}

func newInformer(kind, plural, namespace string, config *rest.Config) (cache.SharedIndexInformer, error) {
	resource := served.WithResource(plural)
	if kind == "metadata" {
		client, err := metadata.NewForConfig(config)
		if err != nil {
			return nil, err
		}
		return metadatainformer.NewFilteredMetadataInformer(client, resource, namespace, 0, cache.Indexers{}, nil).Informer(), nil
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return dynamicinformer.NewFilteredDynamicInformer(client, resource, namespace, 0, cache.Indexers{}, nil).Informer(), nil
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "file of the cluster and the user")
	kind := flag.String("client", "dynamic", "dynamic or metadata")
	plural := flag.String("resource", "gpuclasses", "what to follow: gpuclasses or gpuoffers")
	namespace := flag.String("namespace", metav1.NamespaceAll, "where; all by default")
	watchSeconds := flag.Int("watch-seconds", 0, "how long each watch lasts; 0 for client-go's own choice")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return observer{next, *watchSeconds} })
	informer, err := newInformer(*kind, *plural, *namespace, config)
	if err != nil {
		log.Fatal(err)
	}
	figure := figures[*plural]
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { tell(described("add", object, figure)) },
		UpdateFunc: func(_, object any) { tell(described("update", object, figure)) },
		DeleteFunc: func(object any) { tell(described("delete", object, figure)) },
	})
	if err != nil {
		log.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	go informer.Run(ctx.Done())
	if cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		tell(line{Type: "synced", WatchList: features.FeatureGates().Enabled(features.WatchListClient)})
	}
	<-ctx.Done()
	for _, object := range informer.GetStore().List() {
		if _, isObject := object.(runtime.Object); isObject {
			tell(described("stored", object, figure))
		}
	}
	tell(line{Type: "end"})
}
