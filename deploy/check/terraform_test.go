// SPDX-License-Identifier: Apache-2.0

package check

import (
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclparse"
	"github.com/hashicorp/hcl/v2/hclwrite"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
)

// The attributes that may be set in azurerm 4.55, those with true have to be. Read-only ones are in
// computed.
var azurerm = map[string]map[string]attribute{
	"azurerm_servicebus_namespace": {
		"name": {cty.String, true}, "location": {cty.String, true}, "resource_group_name": {cty.String, true}, "sku": {cty.String, true},
		"capacity": {cty.Number, false}, "premium_messaging_partitions": {cty.Number, false}, "local_auth_enabled": {cty.Bool, false},
		"minimum_tls_version": {cty.String, false}, "public_network_access_enabled": {cty.Bool, false}, "tags": {cty.Map(cty.String), false},
	},
	"azurerm_servicebus_queue": {
		"name": {cty.String, true}, "namespace_id": {cty.String, true}, "auto_delete_on_idle": {cty.String, false}, "batched_operations_enabled": {cty.Bool, false},
		"dead_lettering_on_message_expiration": {cty.Bool, false}, "default_message_ttl": {cty.String, false}, "duplicate_detection_history_time_window": {cty.String, false},
		"express_enabled": {cty.Bool, false}, "forward_dead_lettered_messages_to": {cty.String, false}, "forward_to": {cty.String, false}, "lock_duration": {cty.String, false},
		"max_delivery_count": {cty.Number, false}, "max_message_size_in_kilobytes": {cty.Number, false}, "max_size_in_megabytes": {cty.Number, false},
		"partitioning_enabled": {cty.Bool, false}, "requires_duplicate_detection": {cty.Bool, false}, "requires_session": {cty.Bool, false}, "status": {cty.String, false},
	},
	"azurerm_user_assigned_identity": {
		"name": {cty.String, true}, "location": {cty.String, true}, "resource_group_name": {cty.String, true}, "tags": {cty.Map(cty.String), false},
	},
	"azurerm_role_assignment": {
		"scope": {cty.String, true}, "principal_id": {cty.String, true}, "condition": {cty.String, false}, "condition_version": {cty.String, false},
		"delegated_managed_identity_resource_id": {cty.String, false}, "description": {cty.String, false}, "name": {cty.String, false}, "principal_type": {cty.String, false},
		"role_definition_id": {cty.String, false}, "role_definition_name": {cty.String, false}, "skip_service_principal_aad_check": {cty.Bool, false},
	},
}

var computed = []string{"id", "principal_id", "client_id"}

type attribute struct {
	of   cty.Type
	need bool
}

// A terraform is the module, evaluated with values for its variables.
type terraform struct {
	t         *testing.T
	context   *hcl.EvalContext
	resources map[string]map[string]cty.Value // by the address of an instance, as azurerm_servicebus_queue.work["orders"]
	outputs   map[string]cty.Value
}

func (f *terraform) must(d hcl.Diagnostics) {
	f.t.Helper()
	if d.HasErrors() {
		f.t.Fatal(d)
	}
}

func (f *terraform) value(e hcl.Expression, of cty.Type, more map[string]cty.Value) cty.Value {
	f.t.Helper()
	context := f.context.NewChild()
	context.Variables = more
	v, d := e.Value(context)
	f.must(d)
	v, err := convert.Convert(v, of)
	if err != nil {
		f.t.Fatalf("%s: %v", e.Range(), err)
	}
	return v
}

func body(blocks ...hcl.BlockHeaderSchema) *hcl.BodySchema { return &hcl.BodySchema{Blocks: blocks} }

// startTerraform reads deploy/terraform as Terraform does, and evaluates it.
func startTerraform(t *testing.T, given map[string]cty.Value) *terraform {
	t.Helper()
	f := &terraform{t: t, resources: map[string]map[string]cty.Value{}, outputs: map[string]cty.Value{}, context: &hcl.EvalContext{
		Variables: map[string]cty.Value{},
		Functions: map[string]function.Function{
			"toset": stdlib.MakeToFunc(cty.Set(cty.String)), "contains": stdlib.ContainsFunc, "range": stdlib.RangeFunc, "setproduct": stdlib.SetProductFunc, "join": stdlib.JoinFunc,
		},
	}}
	files, err := filepath.Glob("../terraform/*.tf")
	if err != nil || len(files) == 0 {
		t.Fatalf("deploy/terraform has %v, %v", files, err)
	}
	parser := hclparse.NewParser()
	var bodies []*hcl.File
	for _, name := range files {
		if text := read(t, name); string(hclwrite.Format([]byte(text))) != text {
			t.Errorf("%s: `terraform fmt` would change it", name)
		}
		file, d := parser.ParseHCLFile(name)
		f.must(d)
		bodies = append(bodies, file)
	}
	content, d := hcl.MergeFiles(bodies).Content(body(
		hcl.BlockHeaderSchema{Type: "terraform"}, hcl.BlockHeaderSchema{Type: "locals"}, hcl.BlockHeaderSchema{Type: "resource", LabelNames: []string{"type", "name"}},
		hcl.BlockHeaderSchema{Type: "variable", LabelNames: []string{"name"}}, hcl.BlockHeaderSchema{Type: "output", LabelNames: []string{"name"}},
	))
	f.must(d)
	blocks := content.Blocks.ByType()
	f.variables(blocks["variable"], given)
	f.locals(blocks["locals"])
	f.evaluate(blocks["resource"])
	for _, b := range blocks["output"] {
		attributes := f.attributes(b.Body, "value", "description")
		f.outputs[b.Labels[0]] = f.value(attributes["value"].Expr, cty.String, nil)
	}
	for _, b := range blocks["terraform"] {
		if _, d := b.Body.Content(&hcl.BodySchema{
			Attributes: []hcl.AttributeSchema{{Name: "required_version", Required: true}}, Blocks: []hcl.BlockHeaderSchema{{Type: "required_providers"}},
		}); d.HasErrors() {
			t.Error(d)
		}
	}
	return f
}

// attributes are those of a body that has these and no others; the first is needed.
func (f *terraform) attributes(b hcl.Body, names ...string) hcl.Attributes {
	f.t.Helper()
	schema := &hcl.BodySchema{}
	for i, name := range names {
		schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: name, Required: i == 0})
	}
	content, d := b.Content(schema)
	f.must(d)
	return content.Attributes
}

func (f *terraform) variables(blocks hcl.Blocks, given map[string]cty.Value) {
	f.t.Helper()
	values := map[string]cty.Value{}
	for _, b := range blocks {
		content, d := b.Body.Content(&hcl.BodySchema{
			Attributes: []hcl.AttributeSchema{{Name: "type", Required: true}, {Name: "description", Required: true}, {Name: "default"}},
			Blocks:     []hcl.BlockHeaderSchema{{Type: "validation"}},
		})
		f.must(d)
		name := b.Labels[0]
		v, ok := given[name]
		if standard := content.Attributes["default"]; !ok && standard != nil {
			v, ok = f.value(standard.Expr, cty.DynamicPseudoType, nil), true
		}
		if !ok {
			f.t.Fatalf("the variable %s has no value", name)
		}
		if values[name] = v; hcl.ExprAsKeyword(content.Attributes["type"].Expr) == "" { // list(string)
			var err error
			if values[name], err = convert.Convert(v, cty.List(cty.String)); err != nil {
				f.t.Fatalf("%s: %v", name, err)
			}
		}
		f.context.Variables["var"] = cty.ObjectVal(values)
		for _, rule := range content.Blocks {
			rules := f.attributes(rule.Body, "condition", "error_message")
			if f.value(rules["condition"].Expr, cty.Bool, nil).False() {
				f.t.Fatalf("%s: %s", name, f.value(rules["error_message"].Expr, cty.String, nil).AsString())
			}
		}
	}
	for name := range given {
		if _, ok := values[name]; !ok {
			f.t.Fatalf("there is no variable %s", name)
		}
	}
}

// locals evaluates values, each after those that it refers to.
func (f *terraform) locals(blocks hcl.Blocks) {
	f.t.Helper()
	left := hcl.Attributes{}
	for _, b := range blocks {
		attributes, d := b.Body.JustAttributes()
		f.must(d)
		maps.Copy(left, attributes)
	}
	values := map[string]cty.Value{}
	for len(left) > 0 {
		before := len(left)
		var failed hcl.Diagnostics
		for name, a := range left {
			v, d := a.Expr.Value(f.context)
			if d.HasErrors() {
				failed = append(failed, d...)
				continue
			}
			values[name] = v
			delete(left, name)
			f.context.Variables["local"] = cty.ObjectVal(values)
		}
		if len(left) == before {
			f.must(failed)
		}
	}
}

// evaluate evaluates resources, each after those that it refers to.
func (f *terraform) evaluate(blocks hcl.Blocks) {
	f.t.Helper()
	known := map[string]map[string]cty.Value{}
	order := []string{"azurerm_servicebus_namespace", "azurerm_servicebus_queue", "azurerm_user_assigned_identity", "azurerm_role_assignment"}
	for _, kind := range order {
		known[kind] = map[string]cty.Value{}
		for _, b := range blocks {
			if b.Labels[0] == kind {
				known[kind][b.Labels[1]] = f.resource(b)
			}
		}
		f.context.Variables[kind] = cty.ObjectVal(known[kind])
	}
	for _, b := range blocks {
		if !slices.Contains(order, b.Labels[0]) {
			f.t.Errorf("%s: a kind of resource that this test does not know", b.Labels[0])
		}
	}
}

// resource evaluates a resource: an object, or a map of them.
func (f *terraform) resource(b *hcl.Block) cty.Value {
	f.t.Helper()
	schema := &hcl.BodySchema{Attributes: []hcl.AttributeSchema{{Name: "for_each"}}}
	for name, a := range azurerm[b.Labels[0]] {
		schema.Attributes = append(schema.Attributes, hcl.AttributeSchema{Name: name, Required: a.need})
	}
	content, d := b.Body.Content(schema)
	f.must(d)
	address := strings.Join(b.Labels, ".")
	instance := func(address string, each map[string]cty.Value) cty.Value {
		fields := map[string]cty.Value{}
		for name, a := range content.Attributes {
			if name != "for_each" {
				fields[name] = f.value(a.Expr, azurerm[b.Labels[0]][name].of, each)
			}
		}
		f.resources[address] = maps.Clone(fields)
		for _, name := range computed {
			if _, ok := fields[name]; !ok {
				fields[name] = cty.StringVal(name + " of " + address)
			}
		}
		return cty.ObjectVal(fields)
	}
	each := content.Attributes["for_each"]
	if each == nil {
		return instance(address, nil)
	}
	all := map[string]cty.Value{}
	over, d := each.Expr.Value(f.context)
	f.must(d)
	for it := over.ElementIterator(); it.Next(); {
		key, value := it.Element()
		if over.Type().IsSetType() {
			key = value
		}
		all[key.AsString()] = instance(address+"["+key.AsString()+"]", map[string]cty.Value{"each": cty.ObjectVal(map[string]cty.Value{"key": key, "value": value})})
	}
	return cty.MapVal(all)
}

// rights are what the role assignments of the module give: the identity, the queue and the role.
func (f *terraform) rights() (all []string) {
	for address, r := range f.resources {
		if strings.HasPrefix(address, "azurerm_role_assignment.") {
			who := strings.TrimPrefix(r["principal_id"].AsString(), "principal_id of azurerm_user_assigned_identity.")
			on := strings.TrimPrefix(r["scope"].AsString(), "id of azurerm_servicebus_queue.")
			all = append(all, who+" on "+on+": "+r["role_definition_name"].AsString())
		}
	}
	slices.Sort(all)
	return all
}

// bicepRights are the same of deploy/bicep/main.bicep, for one work queue and these monitor queues.
func bicepRights(t *testing.T, text string, manage bool, monitorQueues []string) (all []string) {
	t.Helper()
	names := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^var (\w+) = '[0-9a-f-]{36}' // (Azure Service Bus Data \w+)`).FindAllStringSubmatch(text, -1) {
		names[m[1]] = m[2]
	}
	block := regexp.MustCompile(`(?s)resource \w+ 'Microsoft\.Authorization/roleAssignments@[^']+' = \[\s*for ([^:]+): \{\s*scope: (\w+)([^\n]*).*?principalId: (\w+)\.properties\.principalId.*?roleDefinitionId: subscriptionResourceId\(role, ([^)]+)\)`)
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		queues, roles := []string{"work[orders]"}, []string{""}
		if m[2] == "companions" { // over queues and both roles
			queues, roles = monitorQueues, []string{"sender", "receiver"}
			if m[1] != "i in range(0, 2 * monitorQueues)" || m[3] != "[i / 2]" || m[5] != "both[i % 2]" {
				t.Fatalf("main.bicep gives roles on the monitor queues by %q, which this test cannot read", m[1:])
			}
		} else if yes, no, ok := strings.Cut(strings.TrimPrefix(m[5], "manage ? "), " : "); ok {
			if roles[0] = no; manage {
				roles[0] = yes
			}
		} else {
			roles[0] = m[5]
		}
		for _, on := range queues {
			for _, role := range roles {
				if names[role] == "" {
					t.Fatalf("main.bicep gives the role %q, which this test cannot read", role)
				}
				all = append(all, m[4]+" on "+on+": "+names[role])
			}
		}
	}
	slices.Sort(all)
	return all
}

// `terraform validate` needs the provider, which Go registries lack: the language's own library parses
// and evaluates the module, against the attributes that @cdktf/provider-azurerm 14.23.1 generates.
func TestTerraformMakesWhatBicepMakes(t *testing.T) {
	bicep := read(t, "../bicep/main.bicep")
	given := map[string]cty.Value{"namespace_name": cty.StringVal("contoso"), "resource_group_name": cty.StringVal("group"), "location": cty.StringVal("westeurope")}
	given["monitor_queues"] = cty.NumberIntVal(2)
	for _, manage := range []bool{false, true} {
		given["manage"] = cty.BoolVal(manage)
		f := startTerraform(t, given)
		got, want := f.rights(), bicepRights(t, bicep, manage, []string{"companions[overdue-monitor]", "companions[overdue-monitor.2]"})
		if !slices.Equal(got, want) || len(want) != 11 {
			t.Errorf("manage %v: Terraform gives\n%s\nBicep\n%s", manage, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	f := startTerraform(t, given)
	renamed := strings.NewReplacer("disableLocalAuth", "local_auth_enabled", "minimumTlsVersion", "minimum_tls_version", "deadLetteringOnMessageExpiration", "dead_lettering_on_message_expiration",
		"defaultMessageTimeToLive", "default_message_ttl", "lockDuration", "lock_duration", "maxDeliveryCount", "max_delivery_count", "requiresSession", "requires_session",
		"requiresDuplicateDetection", "requires_duplicate_detection")
	for address, resource := range map[string]string{
		"azurerm_servicebus_namespace.this": "namespace", "azurerm_servicebus_queue.work[orders]": "work", "azurerm_servicebus_queue.companions[overdue-monitor.2]": "companions",
	} {
		block := regexp.MustCompile(`(?ms)^resource ` + resource + ` '.*?properties: \{\n(.*?)\n\s*\}`).FindStringSubmatch(bicep)
		if block == nil || f.resources[address] == nil {
			t.Fatalf("there is no %s, or no %s", resource, address)
		}
		settings := regexp.MustCompile(`(?m)^\s*(\w+): '?([^'\s]+)'?`).FindAllStringSubmatch(block[1], -1)
		for _, m := range settings {
			name, want := renamed.Replace(m[1]), m[2]
			if m[1] == "disableLocalAuth" { // which is put the other way round
				want = map[string]string{"true": "false", "false": "true"}[want]
			}
			v, err := convert.Convert(f.resources[address][name], cty.String)
			if err != nil || v.IsNull() || v.AsString() != want {
				t.Errorf("%s: %s is %#v, Bicep has %s: %s", address, name, f.resources[address][name], m[1], m[2])
			}
		}
		// Settings that only one of them has: names and places, and the needs of Premium.
		var others []string
		for name := range f.resources[address] {
			if !slices.ContainsFunc(settings, func(m []string) bool { return renamed.Replace(m[1]) == name }) {
				others = append(others, name)
			}
		}
		slices.Sort(others)
		want := []string{"name", "namespace_id"}
		if resource == "namespace" {
			want = []string{"capacity", "location", "name", "premium_messaging_partitions", "resource_group_name", "sku"}
		}
		if !slices.Equal(others, want) {
			t.Errorf("%s also sets %v, want %v", address, others, want)
		}
	}
	if got := f.resources["azurerm_servicebus_queue.companions[overdue-monitor]"]["name"].AsString(); got != variables(t)["OVERDUE_MONITOR_QUEUE"] {
		t.Errorf("the monitor queue is %s, the default of monitorQueue %s", got, variables(t)["OVERDUE_MONITOR_QUEUE"])
	}
	if !strings.Contains(bicep, "name: n == 1 ? monitorQueue : '${monitorQueue}.${n}'") {
		t.Error("main.bicep names the monitor queues in another way than Terraform")
	}
	if got := f.outputs["namespace"].AsString(); got != "contoso.servicebus.windows.net" {
		t.Errorf("the output namespace is %s", got)
	}
	names := map[string]string{"namespace": "namespace", "appIdentity": "app_identity", "appClientId": "app_client_id", "monitorIdentity": "monitor_identity", "monitorClientId": "monitor_client_id"}
	for _, m := range regexp.MustCompile(`(?m)^output (\w+) `).FindAllStringSubmatch(bicep, -1) {
		if _, ok := f.outputs[names[m[1]]]; !ok {
			t.Errorf("Bicep has the output %s, Terraform has no %q", m[1], names[m[1]])
		}
	}
	if len(f.outputs) != len(names) {
		t.Errorf("Terraform has the outputs %v", slices.Collect(maps.Keys(f.outputs)))
	}
	given["sku"] = cty.StringVal("Premium")
	if premium := startTerraform(t, given).resources["azurerm_servicebus_namespace.this"]; premium["capacity"].AsBigFloat().String() != "1" || premium["premium_messaging_partitions"].AsBigFloat().String() != "1" {
		t.Errorf("Premium without units or partitions: %v", premium)
	}
	all := read(t, "../terraform/main.tf") + read(t, "../terraform/outputs.tf")
	for _, m := range regexp.MustCompile(`(?m)^variable "(\w+)"`).FindAllStringSubmatch(read(t, "../terraform/variables.tf"), -1) {
		if !strings.Contains(all, "var."+m[1]) {
			t.Errorf("the variable %s is not used", m[1])
		}
	}
}
