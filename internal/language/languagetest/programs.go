package languagetest

// programs holds, for each language: a greeting, an echo of arguments and
// input, a program that prints to both streams and exits with 3, and one that
// is wrong, with what the tool must say of it.
var programs = []struct {
	language                  string
	compiled                  bool
	hello, echo, fail, broken string
	complaint                 string
}{
	{
		language: "python",
		hello:    "print('hello')\n",
		echo:     "import sys\nfor a in sys.argv[1:]:\n    print(f'[{a}]')\nsys.stdout.write(sys.stdin.read())\n",
		fail:     "import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(3)\n",
		broken:   "print('hello'\n", complaint: "SyntaxError",
	},
	{
		language: "javascript",
		hello:    "console.log('hello')\n",
		echo: "for (const a of process.argv.slice(2)) console.log(`[${a}]`)\n" +
			"process.stdout.write(require('fs').readFileSync(0))\n",
		fail:   "console.log('out'); console.error('err'); process.exit(3)\n",
		broken: "console.log('hello'\n", complaint: "SyntaxError",
	},
	{
		language: "typescript",
		hello:    "const word: string = 'hello'\nconsole.log(word)\n",
		echo: "import * as fs from 'node:fs'\nfor (const a of process.argv.slice(2) as string[]) console.log(`[${a}]`)\n" +
			"process.stdout.write(fs.readFileSync(0))\n",
		fail:   "function quit(code: number): never { process.exit(code) }\nconsole.log('out'); console.error('err'); quit(3)\n",
		broken: "const a: number = ;\n", complaint: "main.ts:1:",
	},
	{
		language: "sh",
		hello:    "echo hello\n",
		echo:     "for a in \"$@\"; do printf '[%s]\\n' \"$a\"; done\ncat\n",
		fail:     "echo out; echo err >&2; exit 3\n",
		broken:   "if true; then echo hello\n", complaint: "yntax error",
	},
	{
		language: "bash",
		hello:    "words=(hello); [[ ${words[0]} == hel* ]] && echo \"${words[0]}\"\n",
		echo:     "for a in \"$@\"; do printf '[%s]\\n' \"$a\"; done\ncat\n",
		fail:     "echo out; echo err >&2; exit 3\n",
		broken:   "if true; then echo hello\n", complaint: "syntax error",
	},
	{
		language: "c", compiled: true,
		hello: "#include <math.h>\n#include <stdio.h>\nint main(int argc, char **argv) { return puts(sqrt(argc) > 0 ? \"hello\" : \"\") < 0; }\n",
		echo: "#include <stdio.h>\nint main(int argc, char **argv) {\n" +
			"  for (int i = 1; i < argc; i++) printf(\"[%s]\\n\", argv[i]);\n" +
			"  for (int c; (c = getchar()) != EOF;) putchar(c);\n}\n",
		fail:   "#include <stdio.h>\nint main(void) { puts(\"out\"); fputs(\"err\\n\", stderr); return 3; }\n",
		broken: "int main(void) { return x; }\n", complaint: "main.c:1:",
	},
	{
		language: "cpp", compiled: true,
		hello: "#include <iostream>\n#include <vector>\n#include <ranges>\n" +
			"int main() { std::vector<int> v{1}; for (int i : v | std::views::filter([](int i) { return i == 1; })) std::cout << \"hello\\n\"; }\n",
		echo: "#include <iostream>\nint main(int argc, char **argv) {\n" +
			"  for (int i = 1; i < argc; i++) std::cout << '[' << argv[i] << \"]\\n\";\n  std::cout << std::cin.rdbuf();\n}\n",
		fail:   "#include <iostream>\nint main() { std::cout << \"out\\n\"; std::cerr << \"err\\n\"; return 3; }\n",
		broken: "int main() { return x; }\n", complaint: "main.cpp:1:",
	},
	{
		language: "go", compiled: true,
		hello: "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"hello\") }\n",
		echo: "package main\n\nimport (\n\t\"fmt\"\n\t\"io\"\n\t\"os\"\n)\n\nfunc main() {\n" +
			"\tfor _, a := range os.Args[1:] {\n\t\tfmt.Printf(\"[%s]\\n\", a)\n\t}\n\tio.Copy(os.Stdout, os.Stdin)\n}\n",
		fail:   "package main\n\nimport \"os\"\n\nfunc main() {\n\tprintln(\"err\")\n\tos.Stdout.WriteString(\"out\\n\")\n\tos.Exit(3)\n}\n",
		broken: "package main\n\nfunc main() { x := 1 }\n", complaint: "main.go:3:",
	},
	{
		language: "rust", compiled: true,
		hello: "fn main() { println!(\"hello\"); }\n",
		echo: "use std::io;\nfn main() {\n    for a in std::env::args().skip(1) { println!(\"[{a}]\"); }\n" +
			"    io::copy(&mut io::stdin(), &mut io::stdout()).unwrap();\n}\n",
		fail:   "fn main() { println!(\"out\"); eprintln!(\"err\"); std::process::exit(3); }\n",
		broken: "fn main() { x }\n", complaint: "main.rs:1:",
	},
	{
		language: "java", compiled: true,
		hello: "public class Main {\n    public static void main(String[] args) { System.out.println(\"hello\"); }\n}\n",
		echo: "import java.io.*;\npublic class Main {\n    public static void main(String[] args) throws IOException {\n" +
			"        for (String a : args) System.out.println(\"[\" + a + \"]\");\n" +
			"        System.in.transferTo(System.out);\n        System.out.flush();\n    }\n}\n",
		fail: "public class Main {\n    public static void main(String[] args) {\n" +
			"        System.out.println(\"out\");\n        System.err.println(\"err\");\n        System.exit(3);\n    }\n}\n",
		broken: "public class Main { int f() { return x; } }\n", complaint: "Main.java:1:",
	},
	{
		language: "ruby",
		hello:    "puts 'hello'\n",
		echo:     "ARGV.each { |a| puts \"[#{a}]\" }\n$stdout.write($stdin.read)\n",
		fail:     "puts 'out'\nwarn 'err'\nexit 3\n",
		broken:   "puts 'hello\n", complaint: "main.rb:1:",
	},
	{
		language: "php",
		hello:    "<?php echo \"hello\\n\";\n",
		echo:     "<?php\nforeach (array_slice($argv, 1) as $a) echo \"[$a]\\n\";\necho stream_get_contents(STDIN);\n",
		fail:     "<?php\necho \"out\\n\";\nfwrite(STDERR, \"err\\n\");\nexit(3);\n",
		broken:   "<?php echo 'hello'\n\n+;\n", complaint: "Parse error",
	},
	{
		language: "perl",
		hello:    "print \"hello\\n\";\n",
		echo:     "print \"[$_]\\n\" for @ARGV;\nprint while <STDIN>;\n",
		fail:     "print \"out\\n\"; print STDERR \"err\\n\"; exit 3;\n",
		broken:   "print 'hello' 'x';\n", complaint: "syntax error",
	},
	{
		language: "r",
		hello:    "cat('hello\\n')\n",
		echo: "for (a in commandArgs(trailingOnly = TRUE)) cat('[', a, ']\\n', sep = '')\n" +
			"writeLines(readLines(file('stdin')))\n",
		fail:   "cat('out\\n')\nmessage('err')\nquit(status = 3)\n",
		broken: "cat('hello\\n'\n", complaint: "Error",
	},
	{
		language: "lua",
		hello:    "print('hello')\n",
		echo:     "for _, a in ipairs(arg) do print('[' .. a .. ']') end\nio.write(io.read('*a'))\n",
		fail:     "print('out')\nio.stderr:write('err\\n')\nos.exit(3)\n",
		broken:   "print('hello'\n", complaint: "main.lua:",
	},
	{
		language: "tcl",
		hello:    "puts hello\n",
		echo:     "foreach a $argv { puts \"\\[$a\\]\" }\nputs -nonewline [read stdin]\n",
		fail:     "puts out\nputs stderr err\nexit 3\n",
		broken:   "puts {hello\n", complaint: "missing close-brace",
	},
}
