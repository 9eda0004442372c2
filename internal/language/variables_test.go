package language

import "testing"

// Variables by which other code is run are told from those that are data.
func TestSteers(t *testing.T) {
	for _, name := range []string{
		"BASH_ENV", "BASH_FUNC_echo%%", "BASHOPTS", "SHELLOPTS", "PS4", "ENV", "PATH", "LD_PRELOAD", "LD_AUDIT", "GCONV_PATH", "NODE_OPTIONS", "NODE_PATH",
		"PYTHONPATH", "PYTHONSTARTUP", "PYTHONWARNINGS", "PYTHONBREAKPOINT", "BROWSER", "PERL5OPT", "PERL5DB", "RUBYOPT", "JAVA_TOOL_OPTIONS",
		"JDK_JAVA_OPTIONS", "_JAVA_OPTIONS", "LUA_INIT", "LUA_INIT_5_4", "PHPRC", "PHP_INI_SCAN_DIR", "R_PROFILE", "GOFLAGS", "CGO_CFLAGS", "RUSTFLAGS",
		"RUSTC_WRAPPER", "CPATH", "TCLLIBPATH", "GIT_SSH_COMMAND",
	} {
		if !Steers(name) {
			t.Errorf("%s is taken for data", name)
		}
	}
	for _, name := range []string{"PYTHONUNBUFFERED", "NODE_ENV", "GOMAXPROCS", "RUST_BACKTRACE", "ENVIRONMENT", "PATHS", "LANG", "TZ", "NAME", "API_URL", "HOME", "bash"} {
		if Steers(name) {
			t.Errorf("%s is taken for code", name)
		}
	}
}
