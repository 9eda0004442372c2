package scan

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"

	"github.com/tdewolff/parse/v2/js"
)

// scriptName takes off what changes nothing about which thing a name means.
func scriptName(name string) string {
	for _, p := range []string{"globalThis.", "global.", "window.", "self.", "process.mainModule.", "module."} {
		name = strings.TrimPrefix(name, p)
	}
	name = strings.TrimPrefix(name, "node:")
	return name[:min(len(name), 200)]
}

// name is what an expression is called, through aliases and require.
func (r *scriptReader) name(e js.IExpr, depth int) string {
	if depth > 30 {
		return "?"
	}
	switch e := e.(type) {
	case *js.Var:
		if v, ok := r.alias[string(e.Name())]; ok {
			return v
		}
		return string(e.Name())
	case *js.GroupExpr:
		return r.name(e.X, depth+1)
	case *js.DotExpr:
		if l, ok := literalOf(e.Y); ok {
			return scriptName(r.name(e.X, depth+1) + "." + string(l.Data))
		}
		return "?"
	case *js.IndexExpr:
		if key, ok := r.fold(e.Y, depth+1).(string); ok {
			return scriptName(r.name(e.X, depth+1) + "." + key)
		}
		return r.name(e.X, depth+1) + "[]"
	case *js.CallExpr:
		return r.nameOfCall(e, depth)
	case *js.NewExpr:
		return r.name(e.X, depth+1) + "()"
	case *js.UnaryExpr:
		return r.name(e.X, depth+1)
	case *js.CommaExpr: // (0, eval)(x)
		if n := len(e.List); n > 0 {
			return r.name(e.List[n-1], depth+1)
		}
	}
	if l, ok := literalOf(e); ok && l.TokenType == js.ImportToken {
		return "import"
	}
	return "?"
}

// nameOfCall is a module's name where one is loaded.
func (r *scriptReader) nameOfCall(e *js.CallExpr, depth int) string {
	name := r.name(e.X, depth+1)
	if (name == "require" || name == "import" || name == "process.binding") && len(e.Args.List) > 0 {
		if module, ok := r.fold(e.Args.List[0].Value, depth+1).(string); ok {
			return scriptName(module)
		}
	}
	return name + "()"
}

// fold is the value of an expression that needs no run to know: string, float64 or nil.
func (r *scriptReader) fold(e js.IExpr, depth int) any {
	if depth > 30 {
		return nil
	}
	switch e := e.(type) {
	case *js.LiteralExpr:
		return literal(*e)
	case js.LiteralExpr:
		return literal(e)
	case *js.GroupExpr:
		return r.fold(e.X, depth+1)
	case *js.TemplateExpr:
		if e.Tag == nil && len(e.List) == 0 {
			return strings.Trim(string(e.Tail), "`")
		}
	case *js.BinaryExpr:
		return foldTwo(e.Op, r.fold(e.X, depth+1), r.fold(e.Y, depth+1))
	case *js.CallExpr:
		return r.foldCall(e, depth)
	}
	return nil
}

func literal(e js.LiteralExpr) any {
	switch e.TokenType {
	case js.StringToken:
		return unquoted(e.Data)
	case js.DecimalToken, js.HexadecimalToken, js.IntegerToken:
		text := strings.ReplaceAll(string(e.Data), "_", "")
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseInt(text, 0, 64); err == nil {
			return float64(n)
		}
	}
	return nil
}

func unquoted(b []byte) string {
	s := string(b)
	if len(s) < 2 {
		return s
	}
	inner := s[1 : len(s)-1]
	if !strings.Contains(inner, `\`) {
		return inner
	}
	if out, err := strconv.Unquote(`"` + strings.ReplaceAll(strings.ReplaceAll(inner, `\'`, `'`), `"`, `\"`) + `"`); err == nil {
		return out
	}
	return inner
}

func foldTwo(op js.TokenType, x, y any) any {
	if a, ok := x.(string); ok && op == js.AddToken {
		if b, ok := y.(string); ok && len(a)+len(b) < 4096 {
			return a + b
		}
	}
	a, ok := x.(float64)
	b, also := y.(float64)
	if !ok || !also {
		return nil
	}
	switch op {
	case js.AddToken:
		return a + b
	case js.MulToken:
		return a * b
	case js.ExpToken:
		return min(math.Pow(a, b), 1e300)
	}
	return nil
}

func (r *scriptReader) foldCall(e *js.CallExpr, depth int) any {
	args := e.Args.List
	value := func(i int) any {
		if i < len(args) {
			return r.fold(args[i].Value, depth+1)
		}
		return nil
	}
	switch name := r.name(e.X, depth+1); {
	case name == "atob":
		return decoded(value(0))
	case name == "String.fromCharCode":
		var b strings.Builder
		for i := range args[:min(len(args), 4096)] {
			if n, ok := value(i).(float64); ok && n < math.MaxInt16 {
				b.WriteRune(rune(n))
			}
		}
		return b.String()
	case name == "Buffer.from" && value(1) == "base64":
		return decoded(value(0))
	case strings.HasSuffix(name, ".toString") || strings.HasSuffix(name, ".join"):
		dot, ok := e.X.(*js.DotExpr)
		if !ok {
			return nil
		}
		if list, ok := dot.X.(*js.ArrayExpr); ok {
			sep, _ := value(0).(string)
			words := r.words(list)
			return strings.Join(words, sep)
		}
		return r.fold(dot.X, depth+1)
	}
	return nil
}

func decoded(v any) any {
	s, _ := v.(string)
	if b, err := base64.StdEncoding.DecodeString(s); err == nil && s != "" {
		return string(b)
	}
	return nil
}

func (r *scriptReader) words(list *js.ArrayExpr) (words []string) {
	for _, e := range list.List[:min(len(list.List), 60)] {
		s, _ := r.fold(e.Value, 1).(string)
		words = append(words, s)
	}
	return words
}
