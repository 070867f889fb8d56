// Command cainjector runs cert-manager's CA injector for webhook configurations.
package main

import (
	"os"

	"github.com/cert-manager/cert-manager/pkg/api"
	"github.com/cert-manager/cert-manager/pkg/controller/cainjector"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	config, err := clientcmd.BuildConfigFromFlags("", os.Args[1])
	check(err)
	config.UserAgent = "cert-manager-cainjector" // it applies as the field manager of this name
	ctrl.SetLogger(klog.Background())
	check(scheme.AddToScheme(api.Scheme))
	manager, err := ctrl.NewManager(config, ctrl.Options{
		Scheme:  api.Scheme,
		Metrics: server.Options{BindAddress: "0"},
	})
	check(err)
	ctx := ctrl.SetupSignalHandler()
	check(cainjector.RegisterAllInjectors(ctx, manager, cainjector.SetupOptions{
		EnableCertificatesDataSource: true,
		EnabledReconcilersFor: map[string]bool{
			cainjector.MutatingWebhookConfigurationName:   true,
			cainjector.ValidatingWebhookConfigurationName: true,
		},
	}))
	check(manager.Start(ctx))
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
