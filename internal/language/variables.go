package language

import (
	"slices"
	"strings"
)

// steering are prefixes of variables by which loaders, shells, interpreters and compilers run
// or load what is not in the program: BASH_ENV='$(id)', NODE_OPTIONS=--import=data:…,
// PERL5OPT, LD_PRELOAD. They are for programs of every language, since one may start another.
var steering = []string{
	"LD_", "GCONV_PATH", "BASH", "SHELLOPTS", "PS4", "PROMPT_COMMAND", "CDPATH", "PYTHON", "NODE_", "NPM_", "npm_", "DENO_", "BUN_",
	"PERL", "RUBY", "GEM_", "BUNDLE_", "JAVA_", "JDK_", "_JAVA_", "CLASSPATH", "PHP", "R_", "LUA_", "TCL", "GO", "CGO_", "RUST", "CARGO_",
	"GCC_", "COMPILER_PATH", "LIBRARY_PATH", "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "GIT_", "BROWSER", "PAGER", "EDITOR", "VISUAL",
}

// steeringNames are those of which others only begin like them.
var steeringNames = []string{"ENV", "PATH", "IFS"}

// harmless are variables with such a prefix that people set every day and that run nothing.
var harmless = []string{
	"GODEBUG", "GOGC", "GOMAXPROCS", "GOMEMLIMIT", "GOTRACEBACK", "NODE_DEBUG", "NODE_DISABLE_COLORS", "NODE_ENV", "NODE_NO_WARNINGS",
	"PYTHONASYNCIODEBUG", "PYTHONDONTWRITEBYTECODE", "PYTHONFAULTHANDLER", "PYTHONHASHSEED", "PYTHONINTMAXSTRDIGITS", "PYTHONIOENCODING",
	"PYTHONMALLOC", "PYTHONNOUSERSITE", "PYTHONOPTIMIZE", "PYTHONSAFEPATH", "PYTHONTRACEMALLOC", "PYTHONUNBUFFERED", "PYTHONUTF8",
	"RUST_BACKTRACE", "RUST_LOG",
}

// Steers says whether a variable of the environment can have other code run than the
// program's.
func Steers(variable string) bool {
	begins := func(prefix string) bool { return strings.HasPrefix(variable, prefix) }
	return slices.Contains(steeringNames, variable) || slices.ContainsFunc(steering, begins) && !slices.Contains(harmless, variable)
}
