package language

import (
	"pinfold/internal/interpreter"
	"pinfold/internal/zygote"
	"pinfold/sandbox"
)

// Limits of compile steps, measured on two slow cores with room to spare.
// Compilers are trusted more than programs, but they read hostile text: every
// one of them has bounds.
var (
	compileSmall = sandbox.Limits{WallTimeMS: 60_000, CPUTimeMS: 60_000, MemoryBytes: 1 << 30, Processes: 64, OpenFiles: 1024}
	compileLarge = sandbox.Limits{WallTimeMS: 120_000, CPUTimeMS: 240_000, MemoryBytes: 2 << 30, Processes: 256, OpenFiles: 1024}
)

// threads keeps numeric libraries from starting one thread for each of the
// host's processors: on a large host that alone passes limits.processes.
var threads = []string{
	"OMP_NUM_THREADS={cpus}", "OPENBLAS_NUM_THREADS={cpus}", "MKL_NUM_THREADS={cpus}",
	"NUMEXPR_MAX_THREADS={cpus}", "POLARS_MAX_THREADS={cpus}",
}

// javaFlags suit a short run in a small sandbox: the serial collector, because
// the others start threads and keep memory; a heap that leaves room for the
// rest of the process, because the JVM sees the host's memory and not the
// limit; no counters file in /tmp. Only javac goes without the JVM's second
// compiler: with it programs start no slower, and long computations take a
// third of the time.
var javaFlags = []string{
	"-Xmx{heap_mib}m", "-XX:+UseSerialGC", "-XX:ActiveProcessorCount={cpus}",
	"-Xshare:auto", "-XX:-UsePerfData", "-Dfile.encoding=UTF-8",
}

var table = []Language{
	{
		Name: "python", Title: "Python", Aliases: []string{"py", "python3"},
		Extensions: []string{".py"}, Interpreters: []string{"python", "pypy"}, File: "main.py",
		Programs: []Program{{[]string{"python3"}, "python3"}},
		Run:      []string{"{python3}", "{file}", "{args}"},
		Wait:     []string{"{python3}", "{support}/" + zygote.PythonWait}, WaitWith: []string{zygote.PythonWait},
		Zygote: []string{"{python3}", "{support}/" + zygote.PythonZygote}, ZygoteWith: zygote.PythonZygoteFiles(),
		Copied: []string{"{python3}", "{support}/" + zygote.PythonCopied}, CopiedWith: zygote.PythonCopiedFiles(),
		StartVariables: []string{"PYTHON"},
		Harness: Harness{
			Run:     []string{"{python3}", "{support}/" + interpreter.PythonHarness, "{options}", "{file}", "{args}"},
			Files:   interpreter.PythonFiles(),
			Limiter: interpreter.PythonLimiter(),
		},
		Env: append([]string{
			"PYTHONDONTWRITEBYTECODE=1", "PYTHONUTF8=1",
			"MPLBACKEND=Agg", "MPLCONFIGDIR={tmp}/.cache/matplotlib",
		}, threads...),
		Version: Version{Args: []string{"{python3}", "--version"}, Pattern: `^Python (\S+)`},
	},
	{
		Name: "javascript", Title: "JavaScript", Aliases: []string{"js", "node", "nodejs", "ecmascript"},
		Extensions: []string{".js", ".mjs", ".cjs"}, Interpreters: []string{"node", "nodejs"}, File: "main.js",
		Programs: []Program{{[]string{"node", "nodejs"}, "nodejs"}},
		Run:      []string{"{node}", "--require", "{support}/node.cjs", "{file}", "{args}"},
		Wait:     []string{"{node}", "--require", "{support}/node.cjs", "{support}/" + zygote.NodeWait}, WaitWith: []string{zygote.NodeWait}, StartVariables: []string{"NODE_"},
		Support: []string{"node.cjs", "sucrase.cjs"},
		Version: Version{Args: []string{"{node}", "--version"}, Pattern: `^v(\S+)`},
	},
	{
		// The translator is our own on every Node: Node's takes the types off
		// only from 22.6 on, and then refuses enums.
		Name: "typescript", Title: "TypeScript", Aliases: []string{"ts"},
		Extensions: []string{".ts", ".mts", ".cts"}, Interpreters: []string{"ts-node", "tsx"}, File: "main.ts",
		Programs: []Program{{[]string{"node", "nodejs"}, "nodejs"}},
		Run:      []string{"{node}", "--require", "{support}/node.cjs", "{file}", "{args}"},
		Wait:     []string{"{node}", "--require", "{support}/node.cjs", "{support}/" + zygote.NodeWait}, WaitWith: []string{zygote.NodeWait}, StartVariables: []string{"NODE_"},
		Support: []string{"node.cjs", "sucrase.cjs"},
		Version: Version{Args: []string{"{node}", "--version"}, Pattern: `^v(\S+)`}, // Node's
	},
	{
		Name: "sh", Title: "Shell (POSIX sh)", Aliases: []string{"shell", "dash", "posix"},
		Interpreters: []string{"sh", "dash", "ash"}, File: "main.sh",
		Programs: []Program{{[]string{"sh"}, "dash"}},
		Run:      []string{"{sh}", "{file}", "{args}"},
	},
	{
		// Whoever names a file .sh and no interpreter in it runs it with bash: that
		// takes what sh does, and the rest that such files are full of.
		Name: "bash", Title: "Bash",
		Extensions: []string{".bash", ".sh"}, Interpreters: []string{"bash"}, File: "main.bash",
		Programs: []Program{{[]string{"bash"}, "bash"}},
		Run:      []string{"{bash}", "{file}", "{args}"},
		Version:  Version{Args: []string{"{bash}", "--version"}, Pattern: `^GNU bash, version ([0-9.]+)`},
	},
	{
		Name: "c", Title: "C", Extensions: []string{".c"}, File: "main.c",
		Programs: []Program{{[]string{"gcc", "clang", "cc"}, "gcc libc6-dev"}},
		Compile:  []string{"{gcc}", "-O2", "-pthread", "-o", "{out}", "{file}", "-lm"},
		Run:      []string{"{out}", "{args}"},
		Version:  compilerVersion("{gcc}"), CompileLimits: compileSmall,
	},
	{
		Name: "cpp", Title: "C++", Aliases: []string{"c++", "cxx", "cc"},
		Extensions: []string{".cpp", ".cc", ".cxx", ".c++"}, File: "main.cpp",
		Programs: []Program{{[]string{"g++", "clang++", "c++"}, "g++"}},
		Compile:  []string{"{g++}", "-std=gnu++20", "-O2", "-pthread", "-o", "{out}", "{file}"},
		Run:      []string{"{out}", "{args}"},
		Version:  compilerVersion("{g++}"), CompileLimits: compileSmall,
	},
	{
		// Where the program has a go.mod its whole package is built, otherwise
		// the one file. Nothing can be downloaded: there is no network. Most of
		// the time goes into the standard library, which Go has only as source;
		// leaving the debug information out saves a fifth of it.
		Name: "go", Title: "Go", Aliases: []string{"golang"},
		Extensions: []string{".go"}, File: "main.go",
		Programs: []Program{{[]string{"go"}, "golang-go"}, {[]string{"sh"}, "dash"}},
		Compile: []string{
			"{sh}", "-c", `[ -f go.mod ] && set -- "$1" "$2" "./$(dirname "$3")"; exec "$1" build -gcflags=all=-dwarf=false -ldflags=-w -o "$2" "$3"`,
			"go", "{go}", "{out}", "{file}",
		},
		Run: []string{"{out}", "{args}"},
		Env: []string{
			"CGO_ENABLED=0", "GOCACHE={tmp}/.cache/go-build", "GOPATH={tmp}/.cache/go", "GOTOOLCHAIN=local",
			"GOPROXY=off", "GOFLAGS=-buildvcs=false", "GOMAXPROCS={cpus}",
			"XDG_CONFIG_HOME={tmp}/.config", // where go counts itself
		},
		Version: Version{Args: []string{"{go}", "version"}, Pattern: `^go version go(\S+)`}, CompileLimits: compileLarge,
	},
	{
		Name: "rust", Title: "Rust", Aliases: []string{"rs"},
		Extensions: []string{".rs"}, File: "main.rs",
		Programs: []Program{{[]string{"rustc"}, "rustc"}, {[]string{"cc", "gcc", "clang"}, "gcc libc6-dev"}},
		Compile:  []string{"{rustc}", "--edition=2021", "-O", "--color=never", "-Clinker={cc}", "-o", "{out}", "{file}"},
		Run:      []string{"{out}", "{args}"},
		Env:      []string{"RAYON_NUM_THREADS={cpus}"},
		Version:  Version{Args: []string{"{rustc}", "--version"}, Pattern: `^rustc (\S+)`}, CompileLimits: compileLarge,
	},
	{
		Name: "java", Title: "Java", Extensions: []string{".java"}, File: "Main.java",
		Programs: []Program{
			{[]string{"java"}, "default-jdk-headless"}, {[]string{"javac"}, "default-jdk-headless"}, {[]string{"sh"}, "dash"},
		},
		Compile: append([]string{"{sh}", "{support}/javac.sh", "{file}", "{out}", "{javac}", "-encoding", "UTF-8", "-J-XX:TieredStopAtLevel=1"}, prefixed("-J", javaFlags)...),
		Run:     append(append([]string{"{java}"}, javaFlags...), "-cp", "{out}", "@{out}.launch", "{args}"),
		Support: []string{"javac.sh"},
		Version: Version{Args: append(append([]string{"{java}"}, javaFlags...), "--version"), Pattern: `^\S+ ([0-9]\S*)`}, CompileLimits: compileSmall,
	},
	{
		Name: "ruby", Title: "Ruby", Aliases: []string{"rb"},
		Extensions: []string{".rb"}, Interpreters: []string{"ruby"}, File: "main.rb",
		Programs: []Program{{[]string{"ruby"}, "ruby"}},
		Run:      []string{"{ruby}", "-r{support}/sync.rb", "{file}", "{args}"},
		Support:  []string{"sync.rb"},
		Version:  Version{Args: []string{"{ruby}", "--version"}, Pattern: `^ruby (\S+)`},
	},
	{
		// Messages go to standard error, once; Pinfold limits the memory.
		Name: "php", Title: "PHP", Extensions: []string{".php"}, Interpreters: []string{"php"}, File: "main.php",
		Programs: []Program{{[]string{"php"}, "php-cli"}},
		Run: []string{
			"{php}", "-d", "short_open_tag=0", "-d", "display_errors=stderr", "-d", "log_errors=0", "-d", "memory_limit=-1",
			"-f", "{file}", "--", "{args}",
		},
		Version: Version{Args: []string{"{php}", "--version"}, Pattern: `^PHP (\S+)`},
	},
	{
		Name: "perl", Title: "Perl", Aliases: []string{"pl"},
		Extensions: []string{".pl"}, Interpreters: []string{"perl"}, File: "main.pl",
		Programs: []Program{{[]string{"perl"}, "perl"}},
		Run:      []string{"{perl}", "-I{support}", "-Msync", "{file}", "{args}"},
		Support:  []string{"sync.pm"},
		Version:  Version{Args: []string{"{perl}", "-e", "print $^V"}, Pattern: `^v(\S+)`},
	},
	{
		Name: "r", Title: "R", Aliases: []string{"rscript"},
		Extensions: []string{".r"}, Interpreters: []string{"Rscript"}, File: "main.R",
		Programs: []Program{{[]string{"Rscript"}, "r-base-core"}},
		Run:      []string{"{Rscript}", "--vanilla", "{file}", "{args}"},
		Env:      append([]string{"R_LIBS_USER={tmp}/.cache/R"}, threads...),
		Version:  Version{Args: []string{"{Rscript}", "--version"}, Pattern: `\bversion ([0-9.]+)`},
	},
	{
		Name: "lua", Title: "Lua", Extensions: []string{".lua"}, Interpreters: []string{"lua", "luajit"}, File: "main.lua",
		Programs: []Program{{[]string{"lua", "lua5.4", "lua5.3", "lua5.2", "lua5.1", "luajit"}, "lua5.4"}},
		Run:      []string{"{lua}", "-e", "io.stdout:setvbuf('line')", "{file}", "{args}"},
		Version:  Version{Args: []string{"{lua}", "-v"}, Pattern: `^Lua(?:JIT)? ([0-9.]+)`},
	},
	{
		Name: "tcl", Title: "Tcl", Aliases: []string{"tclsh"},
		Extensions: []string{".tcl"}, Interpreters: []string{"tclsh", "tcl"}, File: "main.tcl",
		Programs: []Program{{[]string{"tclsh", "tclsh9.0", "tclsh8.7", "tclsh8.6"}, "tcl"}},
		Run:      []string{"{tclsh}", "{file}", "{args}"},
		Version:  Version{Args: []string{"{tclsh}"}, Stdin: "puts [info patchlevel]\n", Pattern: `^([0-9]\S*)`},
	},
}

// compilerVersion reads what gcc and clang say of themselves: the first line
// ends with the version, or has it after the word.
func compilerVersion(compiler string) Version {
	return Version{Args: []string{compiler, "--version"}, Pattern: `^[^\n]*?(?:\) |version )([0-9]+\.[0-9.]+)`}
}

// prefixed returns the flags for a program behind a wrapper (javac's -J).
func prefixed(prefix string, flags []string) []string {
	out := make([]string, len(flags))
	for i, f := range flags {
		out[i] = prefix + f
	}
	return out
}
