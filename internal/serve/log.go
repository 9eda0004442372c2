package serve

import (
	"fmt"
	"io"
	"log/slog"

	"pinfold/internal/config"
	"pinfold/sandbox"
)

// maxLogged is how many runes of one value stand in the log.
const maxLogged = 2000

// newLog makes the log. What comes from outside is escaped in it and cut:
// a guest's bytes must not reach a terminal or forge a line.
func newLog(w io.Writer, c config.Log) (*slog.Logger, *slog.LevelVar) {
	level := &slog.LevelVar{}
	setLevel(level, c.Level)
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: escape}
	if c.Format == config.FormatJSON {
		return slog.New(slog.NewJSONHandler(w, o)), level
	}
	return slog.New(slog.NewTextHandler(w, o)), level
}

// setLevel takes a name that config has checked.
func setLevel(v *slog.LevelVar, name string) {
	var l slog.Level
	if l.UnmarshalText([]byte(name)) == nil {
		v.Set(l)
	}
}

func escape(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Resolve(); v.Kind() { //nolint:exhaustive // numbers and times are harmless
	case slog.KindString:
		a.Value = slog.StringValue(sandbox.SafeText(v.String(), maxLogged))
	case slog.KindAny:
		switch x := v.Any().(type) {
		case *slog.Source, slog.Level:
		case error:
			a.Value = slog.StringValue(sandbox.SafeText(x.Error(), maxLogged))
		default:
			a.Value = slog.StringValue(sandbox.SafeText(fmt.Sprint(x), maxLogged))
		}
	}
	return a
}
