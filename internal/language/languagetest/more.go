package languagetest

// more holds what models and students really write, and what once went wrong.
var more = []Case{
	{
		Language: "python", Name: "own file name", File: "src/analysis.py",
		Files:  map[string]string{"src/helper.py": "answer = 42\n"},
		Source: "import sys, helper\nprint(sys.argv[0], helper.answer)\n",
		Want:   Want{Stdout: "src/analysis.py 42\n"},
	},
	{
		Language: "python", Name: "file named like an option", File: "-c",
		Source: "print('a file')\n", Want: Want{Stdout: "a file\n"},
	},
	{
		Language: "python", Name: "output of a killed program",
		Source: "import os, signal\nprint('before')\nos.kill(os.getpid(), signal.SIGKILL)\n",
		Want:   Want{Stdout: "before\n", ExitCode: AnyFailure},
	},
	{
		Language: "perl", Name: "output of a killed program",
		Source: "print \"before\\n\"; kill 'KILL', $$; sleep 5;\n",
		Want:   Want{Stdout: "before\n", ExitCode: AnyFailure},
	},
	{
		Language: "ruby", Name: "output of a killed program",
		Source: "puts 'before'\nProcess.kill('KILL', $$)\nsleep 5\n",
		Want:   Want{Stdout: "before\n", ExitCode: AnyFailure},
	},
	{
		Language: "lua", Name: "output of a killed program",
		Source: "print('before')\nos.execute('kill -9 $PPID')\n",
		Want:   Want{Stdout: "before\n", ExitCode: AnyFailure},
	},
	{
		Language: "javascript", Name: "ES module named .js",
		Files: map[string]string{"other.js": "export const n = 2\n"},
		Source: "import { n } from './other.js'\nimport { basename } from 'node:path'\n" +
			"const m = await Promise.resolve(3)\nconsole.log(n * m, basename(import.meta.url))\n",
		Want: Want{Stdout: "6 main.js\n"},
	},
	{
		Language: "javascript", Name: "CommonJS", File: "lib/app.cjs",
		Source: "console.log(require.main === module, require('path').basename(__filename))\n",
		Want:   Want{Stdout: "true app.cjs\n"},
	},
	{
		Language: "typescript", Name: "the language", Files: map[string]string{
			"shapes.ts": "export interface Shape { area(): number }\n" +
				"export abstract class Base<T extends string> implements Shape {\n" +
				"  constructor(protected readonly name: T, public scale = 1) {}\n" +
				"  abstract area(): number\n  describe(): string { return `${this.name} ${this.area() * this.scale}` }\n}\n",
			"data.json": "{\"side\": 3}\n",
		},
		Source: "import { Base, type Shape } from './shapes.js'\nimport data from './data.json'\nimport * as path from 'node:path'\n" +
			"enum Colour { Red, Green = 5, Blue }\nconst enum Unit { Metre = 'm' }\ndeclare const nothing: { namespace: string }\n" +
			"class Square extends Base<'square'> {\n  static #made = 0\n  constructor(private side: number) { super('square'); Square.#made++ }\n" +
			"  override area(): number { return this.side ** 2 }\n  static get made() { return this.#made }\n}\n" +
			"function pick<T, K extends keyof T>(o: T, k: K): T[K]\nfunction pick(o: any, k: any) { return o[k] }\n" +
			"const first = <T,>(xs: readonly T[]): T | undefined => xs?.[0]\n" +
			"const options = { deep: { value: 1 as const } } satisfies Record<string, object>\n" +
			"const s: Shape = new Square(data.side)\nconst later = await new Promise<string>((ok) => setTimeout(() => ok('later'), 1))\n" +
			"console.log((s as Square).describe(), Square.made, Colour[Colour.Blue], Unit.Metre)\n" +
			"console.log(pick(options.deep, 'value'), first([1, 2])!, later, path.basename(import.meta.url), 'import.meta.url')\n",
		Want: Want{Stdout: "square 9 1 Blue m\n1 1 later main.ts import.meta.url\n"},
	},
	{
		Language: "typescript", Name: "line numbers",
		Source: "interface A {\n  b: number\n}\n\nthrow new Error('five')\n",
		Want:   Want{StderrHas: "main.ts:5", ExitCode: 1},
	},
	{
		Language: "typescript", Name: "module type in package.json",
		Files:  map[string]string{"package.json": `{"type": "module"}`},
		Source: "const n: number = 1\nconsole.log(n)\n", Want: Want{Stdout: "1\n"},
	},
	{
		// Dropping what it does not know would run another program than the
		// one that was given.
		Language: "typescript", Name: "decorators are refused",
		Source: "function log(t: any, k: any) {}\nclass A { @log m() {} }\n",
		Want:   Want{StderrHas: "main.ts:2:11\nclass A { @log m() {} }\n          ^\n\nSyntaxError: decorators are not supported", ExitCode: 1},
	},
	{
		Language: "typescript", Name: "namespaces are refused",
		Source: "export namespace A { export const b = 1 }\nconsole.log(A.b)\n",
		Want:   Want{StderrHas: "namespaces are not supported", ExitCode: 1},
	},
	{
		Language: "java", Name: "class named otherwise",
		Source: "import java.util.*;\n\npublic final class Solution {\n    record Pair(int a, int b) {}\n" +
			"    public static void main(String... args) { System.out.println(new Pair(1, 2)); }\n}\n",
		Want: Want{Stdout: "Pair[a=1, b=2]\n"},
	},
	{
		Language: "java", Name: "no public class, main in the second",
		Source: "class Helper { static int f() { return 2; } }\n" +
			"class App { public static void main(String[] args) { System.out.println(Helper.f()); } }\n",
		Want: Want{Stdout: "2\n"},
	},
	{
		Language: "java", Name: "package and several files", File: "com/example/App.java",
		Files:  map[string]string{"com/example/Helper.java": "package com.example;\nclass Helper { static String word() { return \"é\"; } }\n"},
		Source: "package com.example;\npublic class App { public static void main(String[] args) { System.out.println(Helper.word()); } }\n",
		Want:   Want{Stdout: "é\n"},
	},
	{
		Language: "java", Name: "garbage does not fill the memory",
		Source: "public class Main { public static void main(String[] args) {\n    long n = 0;\n" +
			"    for (int i = 0; i < 4000; i++) n += new byte[1 << 20].length;\n    System.out.println(n);\n} }\n",
		Want: Want{Stdout: "4194304000\n"},
	},
	{
		Language: "go", Name: "module with two files",
		Files:  map[string]string{"go.mod": "module example\n\ngo 1.18\n", "other.go": "package main\n\nconst n = 2\n"},
		Source: "package main\n\nfunc main() { print(n) }\n", Want: Want{StderrHas: "2"},
	},
	{
		Language: "php", Name: "warnings go to standard error once",
		Source: "<?php\necho $nothing . \"x\\n\";\n", Want: Want{Stdout: "x\n", StderrHas: "Undefined variable"},
	},
	{
		Language: "r", Name: "a plot needs no display",
		Source: "svg('plot.svg')\nplot(1:3)\ninvisible(dev.off())\ncat(file.exists('plot.svg'), '\\n')\n",
		Want:   Want{Stdout: "TRUE \n"},
	},
}
