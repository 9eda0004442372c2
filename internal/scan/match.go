package scan

import (
	"path"
	"slices"
	"strings"
)

// What rules look for that takes more than a list of names.

func startsProcess(p *program, f *fact) bool { return p.starts(f) }

// composedShell is a shell's text that is put together while the program runs.
func composedShell(p *program, f *fact) bool {
	if !p.starts(f) || len(f.args) == 0 || !strings.Contains(f.args[0].Part, "{}") {
		return false
	}
	return f.keywords["shell"].Text == "True" || named(f.name, []string{"os.system", "os.popen", "asyncio.create_subprocess_shell", "child_process.exec", "child_process.execSync", "subprocess.getoutput"})
}

// computed is source that is not a constant text.
func computed(_ *program, f *fact) bool {
	if f.kind != kindCall || !named(f.name, dynamicCalls) || len(f.args) == 0 {
		return false
	}
	switch f.name {
	case "setTimeout", "setInterval":
		return f.args[0].any() != "" || mentionsAny(&fact{args: f.args[:1]}, decodeCalls)
	case "Function":
		return len(f.args[len(f.args)-1].Calls) > 0 || f.args[len(f.args)-1].Text == ""
	}
	return f.args[0].Text == ""
}

// constantCode is a constant text that is run as source.
func constantCode(_ *program, f *fact) bool {
	return f.kind == kindCall && named(f.name, dynamicCalls) && len(f.args) > 0 && f.args[len(f.args)-1].Text != ""
}

// hiddenCode is source that is decoded first.
func hiddenCode(p *program, f *fact) bool {
	switch f.kind {
	case kindCall:
		if named(f.name, dynamicCalls) || named(f.name, []string{"compile"}) || p.starts(f) {
			return mentionsAny(f, decodeCalls)
		}
	case kindPipe:
		row := f.args[0].Calls
		for i, c := range row {
			if decodes(c) && slices.ContainsFunc(row[i+1:], interprets) {
				return true
			}
		}
	case kindCommand:
		text := strings.Join(words(f), " ")
		return (f.name == "eval" || slices.Contains(shells, f.name)) && strings.Contains(text, "$(") && strings.Contains(text, "base64")
	}
	return false
}

func words(f *fact) (all []string) {
	for _, a := range f.args {
		all = append(all, a.Text)
	}
	return all
}

func decodes(command string) bool {
	name, rest, _ := strings.Cut(command, " ")
	switch name {
	case "base64":
		return strings.Contains(rest, "-d") || strings.Contains(rest, "-D") || strings.Contains(rest, "--decode")
	case "xxd":
		return strings.Contains(rest, "-r")
	case "openssl":
		return strings.Contains(rest, "base64") || strings.Contains(rest, "-d")
	}
	return slices.Contains([]string{"rev", "tr", "gunzip", "zcat", "uudecode", "base32"}, name)
}

func interprets(command string) bool {
	name, _, _ := strings.Cut(command, " ")
	return slices.Contains(shells, name) || strings.HasPrefix(name, "python") || slices.Contains([]string{"node", "perl", "ruby", "php", "source"}, name)
}

// fetchedCode is source that comes from the network.
func fetchedCode(_ *program, f *fact) bool {
	switch f.kind {
	case kindCall:
		return (named(f.name, dynamicCalls) || f.name == "compile") && mentionsAny(f, fetchCalls)
	case kindPipe:
		row := f.args[0].Calls
		for i, c := range row {
			if name, _, _ := strings.Cut(c, " "); slices.Contains(networkCommands, name) && slices.ContainsFunc(row[i+1:], interprets) {
				return true
			}
		}
	case kindCommand:
		if f.name == "eval" || f.name == "source" || f.name == "." || interprets(f.name) {
			return slices.ContainsFunc(words(f), func(w string) bool {
				return hasAny(w, []string{"$(curl", "$(wget", "<(curl", "<(wget"})
			})
		}
	}
	return false
}

// longBlob is a long text without words: encoded or encrypted.
func longBlob(_ *program, f *fact) bool {
	if f.kind != kindText || f.arg(0).Number < 400 && len(f.arg(0).Text) < 400 {
		return false
	}
	t := f.arg(0).Text
	if strings.ContainsAny(t, " \n,;") {
		return strings.Count(t, `\x`) > 60
	}
	return varied(t) && !strings.HasPrefix(t, "data:image/") && !strings.HasPrefix(t, "http")
}

// elsewhere is a file that is neither below the working directory nor a usual place.
func elsewhere(p *program, f *fact) bool {
	switch {
	case f.kind == kindCall && named(f.name, openCalls):
		return len(f.args) > 0 && outside(f.args[0].any())
	case f.kind == kindWrite || f.kind == kindRead:
		return outside(f.arg(0).Text)
	case f.kind == kindCommand && slices.Contains(fileCommands, f.name):
		return slices.ContainsFunc(words(f), outside)
	}
	return false
}

func outside(name string) bool {
	switch {
	case strings.HasPrefix(name, "~"), strings.HasPrefix(name, "$HOME"):
		return true
	case strings.HasPrefix(name, "/"):
		clean := path.Clean(name)
		return !slices.ContainsFunc(usualPlaces, func(u string) bool { return clean == u || strings.HasPrefix(clean, u+"/") }) && !strings.ContainsAny(name, " \n<>|^$*")
	}
	return strings.HasPrefix(path.Clean(name), "../")
}

// secretPlace is a place of keys and passwords in a text that is short enough for a name.
func secretPlace(t string) bool {
	return len(t) < 300 && !strings.Contains(t, "\n") && hasAny(t, secretPlaces) && !strings.Contains(t, ".pub")
}

func lastingPlace(t string) bool {
	return len(t) < 300 && !strings.Contains(t, "\n") && hasAny(t, lastingPlaces)
}

// lastingCommand sets up what starts by itself.
func lastingCommand(_ *program, f *fact) bool {
	if f.kind != kindCommand {
		return false
	}
	all := words(f)
	switch f.name {
	case "crontab":
		return !slices.Contains(all, "-l")
	case "systemctl":
		return slices.Contains(all, "enable")
	case "at", "batch":
		return true
	case "update-rc.d", "chkconfig", "launchctl", "schtasks", "useradd", "adduser", "usermod", "chpasswd", "visudo":
		return true
	case "git":
		return strings.Contains(strings.Join(all, " "), "core.hooksPath")
	}
	return false
}

// destroys removes or overwrites what is not the program's.
func destroys(_ *program, f *fact) bool {
	switch f.kind {
	case kindCall:
		name := f.arg(0).any()
		removes := named(f.name, []string{"shutil.rmtree", "os.RemoveAll", "fs.rmSync", "fs.rmdirSync", "fs.rm", "fs.promises.rm", "FileUtils.rm_rf", "fs/promises.rm", "fs.remove_dir_all"})
		home := name == "" && mentionsAny(f, []string{"*.expanduser", "Path.home", "*.home", "os.homedir"})
		return removes && (home || name != "" && wholeTree(name))
	case kindWrite:
		return device(f.arg(0).Text)
	case kindCommand:
		return destroyingCommand(f.name, words(f))
	}
	return false
}

func destroyingCommand(name string, all []string) bool {
	switch name {
	case "rm":
		deep := hasAny(strings.Join(all, " "), []string{"-r", "-fr", "-R", "--recursive"})
		return deep && (slices.ContainsFunc(all, wholeTree) || slices.Contains(all, "--no-preserve-root"))
	case "dd":
		return slices.ContainsFunc(all, func(w string) bool { return strings.HasPrefix(w, "of=") && device(w[3:]) })
	case "find":
		return len(all) > 0 && wholeTree(all[0]) && slices.Contains(all, "-delete")
	case "chmod", "chown":
		return slices.Contains(all, "-R") && slices.ContainsFunc(all, wholeTree)
	case "shred", "wipefs", "sgdisk":
		return true
	}
	return strings.HasPrefix(name, "mkfs")
}

func wholeTree(w string) bool {
	w = strings.TrimSuffix(strings.TrimSuffix(w, "*"), "/")
	return w == "" || slices.Contains([]string{"~", "$HOME", "${HOME}", "/home", "/etc", "/usr", "/var", "/bin", "/lib", "/root", "/boot", "/opt", "/home/user"}, w)
}

// sweeps goes through whole trees of the machine.
func sweeps(_ *program, f *fact) bool {
	switch f.kind {
	case kindCall:
		return named(f.name, []string{"os.walk", "os.scandir", "glob.glob", "filepath.Walk", "filepath.WalkDir", "fs.readdirSync", "fs.readdir"}) && f.arg(0).any() != "" && wholeTree(f.arg(0).any())
	case kindCommand:
		return (f.name == "find" || f.name == "ls" && slices.Contains(words(f), "-R") || f.name == "grep" && slices.Contains(words(f), "-r")) && len(f.args) > 0 && slices.ContainsFunc(words(f), func(w string) bool { return w != "" && wholeTree(w) })
	}
	return false
}

func device(w string) bool {
	return hasAny(w, []string{"/dev/sd", "/dev/nvme", "/dev/vd", "/dev/mem", "/dev/hd", "/dev/xvd", "/dev/mmcblk", "/proc/sysrq-trigger"})
}

// breaksOut calls what programs in a sandbox have no use for.
func breaksOut(_ *program, f *fact) bool {
	for t := range f.texts {
		if len(t) < 300 && hasAny(t, []string{"/proc/1/root", "/proc/1/ns", "release_agent", "core_pattern", "docker.sock", "containerd.sock", "/proc/sysrq-trigger", "uevent_helper", "/sys/fs/cgroup", "/proc/self/exe", "binfmt_misc", "/proc/self/mem", "/dev/kvm"}) {
			return true
		}
	}
	if f.kind == kindCommand {
		return slices.Contains([]string{"nsenter", "unshare", "mount", "umount", "chroot", "pivot_root", "insmod", "modprobe", "kexec", "capsh", "docker", "kubectl", "setcap", "runc", "ctr", "gdb", "strace"}, f.name)
	}
	return f.kind == kindCall && named(f.name, []string{"os.setuid", "os.setgid", "os.chroot", "os.unshare", "os.setns", "process.setuid", "ptrace", "setuid", "chroot", "syscall.Chroot", "syscall.PtraceAttach", "unshare", "setns", "mount", "init_module", "syscall.Mount", "Process.setuid", "process_vm_readv"})
}

// reverseShell connects a shell to the network.
func reverseShell(_ *program, f *fact) bool {
	switch f.kind {
	case kindCommand:
		all := words(f)
		if slices.Contains([]string{"nc", "ncat", "netcat"}, f.name) {
			return slices.ContainsFunc(all, func(w string) bool {
				return strings.HasPrefix(w, "-") && (strings.Contains(w, "e") || strings.HasSuffix(w, "c")) && !strings.HasPrefix(w, "--")
			})
		}
		return f.name == "socat" && hasAny(strings.ToLower(strings.Join(all, " ")), []string{"exec:", "system:"})
	case kindPipe:
		row := f.args[0].Calls
		for i, c := range row[:len(row)-1] {
			if interprets(c) && hasAny(row[i+1], []string{"nc ", "ncat ", "netcat ", "telnet ", "socat "}) {
				return true
			}
		}
	case kindWrite, kindRead, kindText:
		return hasAny(f.arg(0).Text, []string{"/dev/tcp/", "/dev/udp/"})
	case kindCall:
		if named(f.name, []string{"os.dup2", "dup2", "syscall.Dup2", "*.reopen"}) {
			return mentionsAny(f, []string{"*.fileno"}) || f.name == "dup2" || f.name == "syscall.Dup2"
		}
		return strings.HasSuffix(f.name, ".pipe") && mentionsAny(f, []string{"child_process.*"})
	}
	return false
}

// installs adds software. foreign says from where only this program says so.
func installs(f *fact) (yes, foreign bool) {
	if f.kind == kindCall && named(f.name, []string{"pip.main", "pip._internal.main", "pip._internal.cli.main.main", "install.packages", "ensurepip.bootstrap"}) {
		return true, false
	}
	if f.kind != kindCommand {
		return false, false
	}
	all := words(f)
	name := f.name
	if (strings.HasPrefix(name, "python") || name == "") && len(all) > 2 && all[0] == "-m" {
		name, all = all[1], all[2:]
	}
	verb := []string{"install", "add", "i", "ci", "get"}
	switch strings.TrimRight(name, "0123456789.") {
	case "pip", "npm", "yarn", "pnpm", "apt", "apt-get", "apk", "gem", "cargo", "go", "conda", "mamba", "uv", "pipx", "poetry", "dnf", "yum", "brew", "easy_install", "luarocks", "composer", "bun":
		yes = slices.ContainsFunc(all, func(w string) bool { return slices.Contains(verb, w) })
	case "npx":
		yes = true
	case "dpkg":
		yes = slices.Contains(all, "-i")
	}
	rest := strings.Join(all, " ")
	foreign = yes && hasAny(rest, []string{"http://", "https://", "git+", "--index-url", "--extra-index-url", "-i http", "--trusted-host", "--registry", "--allow-unauthenticated"})
	return yes, foreign
}

// allEnvironment is the environment as a whole, not one variable of it.
func allEnvironment(_ *program, f *fact) bool {
	whole := []string{"os.environ", "process.env", "os.environ.copy", "os.environ.items", "os.Environ", "dict(os.environ)", "env.vars", "System.getenv"}
	switch {
	case f.kind == kindCommand && (f.name == "env" || f.name == "printenv" || f.name == "set"):
		return len(f.args) == 0
	case f.kind == kindPipe:
		return slices.Contains(f.args[0].Calls, "env") || slices.Contains(f.args[0].Calls, "printenv")
	case f.kind != kindCall:
		return false
	case named(f.name, []string{"os.environ.items", "os.environ.copy", "os.Environ", "env.vars"}):
		return len(f.args) == 0
	case strings.HasPrefix(f.name, "subprocess.") || strings.HasPrefix(f.name, "os.environ.") || strings.HasPrefix(f.name, "child_process."):
		return false
	}
	for _, a := range f.args {
		for i, c := range a.Calls {
			// A name that goes on with its next mention (os.environ.get) is one variable.
			if slices.Contains(whole, c) && (i == 0 || !strings.HasPrefix(a.Calls[i-1], c)) && !f.reads(a.Calls) {
				return true
			}
		}
	}
	return false
}

// reads says whether one variable of the environment is read among the names.
func (f *fact) reads(names []string) bool {
	return slices.ContainsFunc(names, func(n string) bool {
		return strings.HasPrefix(n, "os.environ.") && !slices.Contains([]string{"os.environ.items", "os.environ.copy"}, n) || strings.HasPrefix(n, "process.env.") || n == "os.environ[]"
	})
}

// huge is more than a program needs and a small machine has.
const huge = 2e9

func hugeSize(_ *program, f *fact) bool {
	switch f.kind {
	case kindRepeat:
		return f.arg(0).Number >= huge
	case kindNumber:
		return f.arg(0).Number > 1e200
	case kindCall:
		sized := []string{"range", "bytearray", "bytes", "numpy.zeros", "numpy.ones", "numpy.empty", "np.zeros", "np.ones", "Buffer.alloc", "Buffer.allocUnsafe", "Array", "*.repeat", "ArrayBuffer", "Uint8Array", "malloc", "make", "list", "os.urandom", "random.randbytes", "*.padStart"}
		return named(f.name, sized) && slices.ContainsFunc(f.args, func(a arg) bool { return a.Number >= huge }) ||
			named(f.name, []string{"list", "tuple", "set", "sum"}) && mentionsAny(f, []string{"itertools.count", "itertools.repeat", "itertools.cycle"})
	case kindCommand:
		all := strings.Join(words(f), " ")
		return f.name == "dd" && strings.Contains(all, "if=/dev/zero") && !strings.Contains(all, "count=") || f.name == "fallocate" && hasAny(all, []string{"G", "T"})
	case kindPipe:
		return strings.HasPrefix(f.args[0].Calls[0], "yes") && !slices.ContainsFunc(f.args[0].Calls, func(c string) bool { return hasAny(c, []string{"head", "apt", "pip", "install"}) }) && len(f.args[0].Calls) > 1
	}
	return false
}

func forks(_ *program, f *fact) bool {
	return f.kind == kindFork || f.kind == kindEndless && slices.ContainsFunc(f.arg(0).Calls, func(c string) bool {
		return c == "&" || named(c, []string{"os.fork", "fork", "os.forkpty", "multiprocessing.Process", "subprocess.Popen", "threading.Thread", "child_process.*", "Worker", "worker_threads.*", "_thread.start_new_thread"})
	})
}

func grows(_ *program, f *fact) bool { return f.kind == kindEndless && f.grows }

// spins is a loop that neither waits nor asks for anything.
func spins(_ *program, f *fact) bool {
	return f.kind == kindEndless && !f.grows && !slices.ContainsFunc(f.arg(0).Calls, func(c string) bool { return c != ":" && c != "true" })
}

// innards are what lead from any value of an interpreter to all others.
func innards(_ *program, f *fact) bool {
	ways := []string{"__subclasses__", "__globals__", "__mro__", "__bases__", "__builtins__", "__code__", "f_globals", "gi_frame", "_getframe", "__getattribute__", "constructor.constructor", "__proto__"}
	switch f.kind {
	case kindName, kindSet:
		return hasAny(f.name, ways)
	case kindCall:
		if strings.HasPrefix(f.name, "vm.") && strings.Contains(f.arg(0).Text, "constructor") {
			return true
		}
		return named(f.name, []string{"gc.get_objects", "gc.get_referrers", "sys._getframe", "inspect.currentframe", "*.constructor.constructor"}) || hasAny(f.name, ways)
	}
	return false
}

// unsafeLoad reads values that run code when they are read.
func unsafeLoad(_ *program, f *fact) bool {
	if f.kind != kindCall {
		return false
	}
	switch f.name {
	case "yaml.load", "yaml.load_all":
		loader := f.keywords["Loader"]
		safe := append(append([]string{}, loader.Calls...), f.arg(1).Calls...)
		return !slices.ContainsFunc(safe, func(c string) bool { return strings.Contains(c, "SafeLoader") || strings.Contains(c, "BaseLoader") })
	case "torch.load":
		return f.keywords["weights_only"].Text != "True"
	case "numpy.load":
		return f.keywords["allow_pickle"].Text == "True"
	}
	return named(f.name, unsafeLoads)
}

// passwordText is a constant that is given where passwords are.
func passwordText(p *program, f *fact) bool {
	if f.kind != kindCall {
		return false
	}
	for k, a := range f.keywords {
		if slices.Contains([]string{"password", "passwd", "api_key", "apikey", "secret_key", "aws_secret_access_key", "auth_token", "access_token"}, strings.ToLower(k)) && len(a.Text) >= 6 {
			return !hasAny(strings.ToLower(a.Text), []string{"example", "changeme", "your", "xxx", "none", "test", "dummy", "placeholder"})
		}
	}
	return false
}

// hiddenName is a call of getattr, __import__ or an index with a name that is put
// together, where the name would do as it is.
func hiddenName(_ *program, f *fact) bool { return f.kind == kindHidden }
