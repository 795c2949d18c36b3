// Command foreignkinds reads a JSON list of objects from standard input and decodes each strictly as the type that
// cert-manager or the Prometheus operator has for it. A field that the type lacks, a wrong type, and a kind that there is not are errors.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"

	certmanager "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

func decode(raw json.RawMessage) error {
	var head struct{ APIVersion, Kind string }
	if err := json.Unmarshal(raw, &head); err != nil {
		return err
	}
	ofCertManager, ofOperator := certmanager.SchemeGroupVersion.String(), monitoring.SchemeGroupVersion.String()
	kinds := map[string]any{
		ofCertManager + " Certificate": &certmanager.Certificate{},
		ofCertManager + " Issuer":      &certmanager.Issuer{},
		ofOperator + " ServiceMonitor": &monitoring.ServiceMonitor{},
		ofOperator + " PrometheusRule": &monitoring.PrometheusRule{},
	}
	object, known := kinds[head.APIVersion+" "+head.Kind]
	if !known {
		return fmt.Errorf("%s %s: no such kind", head.APIVersion, head.Kind)
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(object); err != nil {
		return fmt.Errorf("%s: %w", head.Kind, err)
	}
	return nil
}

func main() {
	var objects []json.RawMessage
	if err := json.NewDecoder(os.Stdin).Decode(&objects); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	failed := false
	for _, each := range objects {
		if err := decode(each); err != nil {
			fmt.Fprintln(os.Stderr, err)
			failed = true
		}
	}
	if failed {
		os.Exit(1)
	}
	fmt.Println(len(objects))
}
