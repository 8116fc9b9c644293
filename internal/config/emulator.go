// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	"os"

	"overdue/internal/broker/emulator"
)

// mountedConfig is where the official emulator has its configuration in its container.
const mountedConfig = "/ServiceBus_Emulator/ConfigFiles/Config.json"

// emulatorPresets are the settings of the broker that the environment of the official emulator
// means. Of its variables ACCEPT_EULA, SQL_SERVER, MSSQL_SA_PASSWORD and SQL_WAIT_INTERVAL mean
// nothing: there is no licence to accept and no database.
func emulatorPresets(getenv func(string) string) []Preset {
	const httpPort = "EMULATOR_HTTP_PORT"
	alsoListen := Preset{Path: "broker.alsoListen", Text: "0.0.0.0:" + cmp.Or(getenv(httpPort), "5300")}
	if getenv(httpPort) != "" {
		alsoListen.Variable = httpPort
	}
	return []Preset{
		{Path: "broker.insecure", Text: "true"},
		{Path: "broker.listen", Text: "0.0.0.0:5672"},
		alsoListen,
		{Path: "broker.autoCreate", Text: "false"},
		{Path: "broker.monitorQueue", Text: "false"}, // the official one has only what its file lists
		entitiesPreset(getenv),
	}
}

// entitiesPreset is where the entities come from. CONFIG_PATH may be a path of the machine that
// mounts the file: Compose files of the official emulator use it so.
func entitiesPreset(getenv func(string) string) Preset {
	preset := Preset{Path: "broker.emulatorConfig", Text: emulator.Default}
	mounted, path := fileExists(mountedConfig), getenv("CONFIG_PATH")
	switch {
	case getenv("CONFIG_JSON") != "":
		preset.Text, preset.Variable = getenv("CONFIG_JSON"), "CONFIG_JSON"
	case path != "" && (fileExists(path) || !mounted):
		preset.Text, preset.Variable = path, "CONFIG_PATH"
	case mounted:
		preset.Text = mountedConfig
	}
	return preset
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
