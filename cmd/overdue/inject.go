// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"overdue/internal/app"
	"overdue/internal/config"
	"overdue/internal/operator/inject"
	"overdue/internal/operator/inject/admission"
	"overdue/internal/terminal"
	"overdue/internal/version"
)

// localConnection is what an app beside the sidecar connects with.
const localConnection = "Endpoint=sb://127.0.0.1;SharedAccessKeyName=any;SharedAccessKey=any;UseDevelopmentEmulator=true"

func (p *program) injectCommand() *cobra.Command {
	var f injectFlags
	var out bool
	cmd := &cobra.Command{
		Use:   "inject [file…]",
		Short: "Add the sidecar to Kubernetes manifests, or take it out",
		Long: "Reads manifests from the files, or from standard input, and prints them with the sidecar beside the app of\n" +
			"every Pod, Deployment, StatefulSet, DaemonSet, ReplicaSet, Job and CronJob: a native sidecar (Kubernetes 1.29 or\n" +
			"later) with its probes, security context, volumes and a ConfigMap. Other objects stay as they are.\n\n" +
			"A second run changes nothing, and one with other flags replaces the sidecar. --remove takes it out again.\n" +
			"`overdue inject serve` does the same to pods while the cluster creates them.\n\n" +
			"Annotations of a workload or of its pod template take precedence over the flags:\n\n" + annotationList() +
			"\nSet the connection string of the app to\n\n  " + localConnection +
			"\n\nAn app that signs in with Entra ID needs TLS and a custom endpoint instead: see docs/start/entra.md.",
		Example: "  overdue inject --image registry.example.com/overdue:1.0 \\\n" +
			"    --namespace contoso.servicebus.windows.net app.yaml | kubectl apply -f -\n" +
			"  kubectl get deploy -o yaml | overdue inject --remove - | kubectl apply -f -",
	}
	f.define(cmd)
	cmd.Flags().BoolVar(&out, "remove", false, "take the sidecar out")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := f.options(out)
		if err != nil {
			return &config.Error{Err: err}
		}
		in, err := manifests(cmd.InOrStdin(), args)
		if err != nil {
			return err
		}
		result, err := inject.Manifest(in, o)
		if err != nil {
			return &config.Error{Err: err}
		}
		if _, err := p.stdout.Write(result.Manifest); err != nil {
			return err
		}
		p.reportInjected(&o, &result)
		return nil
	}
	addHidden(cmd, p.injectServeCommand()) // the chart runs it
	return cmd
}

// injectFlags say what the sidecar is.
type injectFlags struct{ image, namespace, queues, topics, identity, file string }

func (i *injectFlags) define(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&i.image, "image", "", "image of the sidecar")
	f.StringVar(&i.namespace, "namespace", "", "Service Bus namespace, fully qualified")
	f.StringVar(&i.queues, "queues", "", "queues to monitor, with commas between them (default: every one that the app sends to)")
	f.StringVar(&i.topics, "topics", "", "topics to monitor, likewise")
	f.StringVar(&i.identity, "identity", inject.IdentityWorkload, "workload, or secret:NAME/KEY for a connection string in a Secret")
	f.StringVar(&i.file, "config", "", "configuration file of the sidecar, YAML, instead of --queues and --topics")
}

func (i *injectFlags) options(remove bool) (o inject.Options, err error) {
	o = inject.Options{Image: i.image, Namespace: i.namespace, Queues: inject.Names(i.queues), Topics: inject.Names(i.topics), Identity: i.identity, Remove: remove}
	if err := readSidecarConfig(&o, i.file); err != nil {
		return o, err
	}
	if o.Image == "" && !remove {
		return o, errors.New("--image: name the image of the sidecar, as registry.example.com/overdue:1.0")
	}
	return o, nil
}

// annotationList is a list for the help.
func annotationList() string {
	var b strings.Builder
	for _, a := range inject.Annotations {
		fmt.Fprintf(&b, "  %-26s %s\n", a[0], a[1])
	}
	return b.String()
}

// readSidecarConfig reads the configuration of the sidecar and checks it as the sidecar will.
func readSidecarConfig(o *inject.Options, file string) error {
	if file == "" {
		return nil
	}
	if len(o.Queues)+len(o.Topics) > 0 {
		return errors.New("--config replaces --queues and --topics; keep one of them")
	}
	namespace := o.Namespace
	if namespace == "" {
		namespace = "any.servicebus.windows.net" // a Secret or an annotation states it
	}
	// The files that it names are in the pod, so they cannot be checked here.
	c, err := config.Load(file, func(string) string { return "" }, map[string]string{"namespace": namespace})
	if err != nil {
		return err
	}
	if err := c.CheckRole(config.RoleProxy); err != nil {
		return err
	}
	o.Config, err = os.ReadFile(file)
	return err
}

// manifests reads the files, or standard input.
func manifests(stdin io.Reader, files []string) ([]byte, error) {
	if len(files) == 0 {
		files = []string{"-"}
	}
	var all bytes.Buffer
	for _, name := range files {
		if f, ok := stdin.(*os.File); ok && name == "-" && terminal.Is(f) {
			return nil, &config.Error{Err: errors.New("name files with manifests, or pipe them in")}
		}
		in := stdin
		if name != "-" {
			f, err := os.Open(name)
			if err != nil {
				return nil, &config.Error{Err: err}
			}
			defer f.Close()
			in = f
		}
		text, err := io.ReadAll(io.LimitReader(in, inject.MaxManifest+1))
		if err != nil {
			return nil, &config.Error{Err: err}
		}
		if all.Len() > 0 {
			all.WriteString("---\n")
		}
		all.Write(text)
		if all.Len() > inject.MaxManifest {
			return nil, &config.Error{Err: fmt.Errorf("%s: the manifests have more than %d MiB", name, inject.MaxManifest>>20)}
		}
		if len(text) > 0 && text[len(text)-1] != '\n' {
			all.WriteByte('\n')
		}
	}
	return all.Bytes(), nil
}

// reportInjected says on stderr what has changed.
func (p *program) reportInjected(o *inject.Options, r *inject.Result) {
	did := "sidecar added"
	if o.Remove {
		did = "sidecar taken out"
	}
	for _, title := range r.Changed {
		fmt.Fprintf(p.stderr, "%s: %s\n", title, did)
	}
	for _, s := range r.Skipped {
		fmt.Fprintf(p.stderr, "%s; left as it is\n", s)
	}
	switch {
	case len(r.Changed) == 0 && len(r.Skipped) == 0:
		fmt.Fprintln(p.stderr, "nothing changed: no workload in these manifests")
	case len(r.Changed) > 0 && !o.Remove:
		fmt.Fprintf(p.stderr, "Set the connection string of the app to %s\nIf it signs in with Entra ID, see %s\n", localConnection, version.Doc("docs/start/entra.md"))
	}
}

func (p *program) injectServeCommand() *cobra.Command {
	var i injectFlags
	var w admission.Config
	var logLevel string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the webhook that adds the sidecar to pods as a cluster creates them",
		Long: "Serves a mutating admission webhook at " + admission.Path + ", for AdmissionReviews of version v1. Pods get the sidecar\n" +
			"that `overdue inject` adds, and its configuration in an annotation. Annotations of the pod take precedence over\n" +
			"the flags. The chart installs all that it needs (webhook.enabled).\n\n" +
			"The certificate comes from --tls-cert-file and --tls-key-file, which are read again when they change. In the\n" +
			"chart, cert-manager makes it.\n\n" +
			"Readiness, liveness and metrics are at --listen-probes.",
		Example: "  overdue inject serve --image registry.example.com/overdue:1.0 \\\n" +
			"    --namespace contoso.servicebus.windows.net \\\n    --tls-cert-file /tls/tls.crt --tls-key-file /tls/tls.key",
	}
	i.define(cmd)
	f := cmd.Flags()
	f.StringVar(&w.Listen, "listen", ":8443", "address of the webhook")
	f.StringVar(&w.ListenProbes, "listen-probes", ":9096", "address of probes and metrics")
	f.BoolVar(&w.Refuse, "refuse", false, "refuse a pod that cannot have the sidecar, instead of a warning; for failurePolicy: Fail")
	f.StringVar(&w.CertFile, "tls-cert-file", "", "certificate, PEM")
	f.StringVar(&w.KeyFile, "tls-key-file", "", "key of the certificate, PEM")
	choiceVar(cmd, &logLevel, "log-level", "info", config.SettingAt("log.level").Choices, "the least level that is logged")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var err error
		if w.Options, err = i.options(false); err == nil && (w.CertFile == "" || w.KeyFile == "") {
			err = errors.New("name a certificate with --tls-cert-file and its key with --tls-key-file")
		}
		if err != nil {
			return &config.Error{Err: err}
		}
		if w.Log, _, err = app.NewLog(p.stderr, config.Log{Level: logLevel, Format: "auto"}); err != nil {
			return &config.Error{Err: fmt.Errorf("--log-level: %w", err)}
		}
		defer func() { _ = w.Log.Sync() }() // of a terminal or a pipe it fails for no reason
		return admission.Serve(cmd.Context(), w)
	}
	return cmd
}
