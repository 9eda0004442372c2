package secret

import (
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
)

// formsOf are the ways in which programs write a text: as it is, in base64, hexadecimal,
// URLs, JSON and HTML.
func formsOf(plain string) []string {
	coded := hex.EncodeToString([]byte(plain))
	all := append(base64Forms(plain), plain, coded, strings.ToUpper(coded))
	for _, kept := range []string{
		"-_.~",                 // RFC 3986
		"-_.~/",                // Python
		"-_.~$&+:=@",           // Go, in paths
		"-_.!~*'()",            // JavaScript, encodeURIComponent
		"-_.!~*'();/?:@&=+$,#", // encodeURI
		"-_.*",                 // Java, and forms
	} {
		for _, escape := range []string{"%%%02X", "%%%02x"} {
			coded := percent(plain, kept, escape)
			all = append(all, coded, strings.ReplaceAll(coded, "%20", "+"))
		}
	}
	for _, slash := range []string{"/", `\/`} {
		for _, html := range []*strings.Replacer{strings.NewReplacer(), strings.NewReplacer("<", `\u003c`, ">", `\u003e`, "&", `\u0026`), strings.NewReplacer("<", `\u003C`, ">", `\u003E`, "&", `\u0026`)} {
			all = append(all, html.Replace(strings.NewReplacer(`\`, `\\`, `"`, `\"`, "/", slash).Replace(plain)))
		}
	}
	for _, double := range []string{`"`, "&quot;", "&#34;", "&#x22;"} {
		for _, single := range []string{"'", "&apos;", "&#39;", "&#x27;", "&#039;"} {
			for _, plus := range []string{"+", "&#43;", "&#x2b;", "&#x2B;"} {
				all = append(all, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, double, "'", single, "+", plus).Replace(plain))
			}
		}
	}
	return all
}

func base64Forms(plain string) (all []string) {
	for _, e := range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		all = append(all, e.EncodeToString([]byte(plain)))
	}
	return all
}

// percent writes a text for a URL: letters, digits and what is kept as they are.
func percent(plain, kept, escape string) string {
	var coded strings.Builder
	for _, b := range []byte(plain) {
		if 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || strings.IndexByte(kept, b) >= 0 {
			coded.WriteByte(b)
		} else {
			fmt.Fprintf(&coded, escape, b)
		}
	}
	return coded.String()
}
