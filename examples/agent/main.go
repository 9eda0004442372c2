// Command agent does what an agent does with a sandbox, again and again: it puts
// data in, runs what the model wrote, shows the model what came of it, runs what
// the model writes then, and fetches the chart. The model here is two programs,
// the first of which has a mistake.
//
//	PINFOLD_SERVER=http://127.0.0.1:7463 PINFOLD_KEY=pfk_… go run ./examples/agent
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"pinfold/client"
	"pinfold/sandbox"
)

const data = "month,visitors\n1,120\n2,160\n3,90\n"

// answers are what the model says.
var answers = []string{
	`import csv
print(max(int(r["visitor"]) for r in csv.DictReader(open("data.csv"))))`,
	`import csv
rows = list(csv.DictReader(open("data.csv")))
bars = "".join(f'<rect x="{40 * i}" width="30" height="{r["visitors"]}"/>' for i, r in enumerate(rows))
open("chart.svg", "w").write(f'<svg xmlns="http://www.w3.org/2000/svg">{bars}</svg>')
print("at most", max(int(r["visitors"]) for r in rows))`,
}

func main() {
	if err := run(context.Background()); err != nil {
		e := sandbox.AsError(err)
		fmt.Fprintln(os.Stderr, e.Error())
		fmt.Fprintln(os.Stderr, "hint:", e.Hint)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	c, err := client.New("") // PINFOLD_SERVER, PINFOLD_KEY
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()

	box, err := c.Create(ctx, sandbox.Create{TTLMS: 600_000})
	if err != nil {
		return err
	}
	defer func() { _, _ = box.Destroy(ctx) }() // its time to live would end it, too
	if err := box.WriteFile(ctx, "data.csv", 0, -1, strings.NewReader(data)); err != nil {
		return err
	}
	for _, code := range answers {
		p, err := box.Exec(ctx, sandbox.Command{Args: []string{"python3", "-c", code}}, client.ExecOptions{})
		if err != nil {
			return err // Pinfold failed; that the program did is in p
		}
		if p.ExitCode == nil || *p.ExitCode != 0 {
			fmt.Printf("%s: %s\n", p.Cause.Kind, lastLine(p.Stderr)) // for the model
			continue
		}
		fmt.Print(p.Stdout)
	}
	var chart bytes.Buffer
	n, err := box.ReadFile(ctx, "chart.svg", 0, -1, &chart)
	fmt.Printf("a chart of %d bytes\n", n)
	return err
}

// lastLine is the message of a Python program's error. It comes from a guest.
func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return sandbox.SafeText(lines[len(lines)-1], 200)
}
