package image

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// maxCopy bounds a host file that is copied into a template, in bytes. Copying
// one this small costs less than a mount.
const maxCopy = 4 << 10

// copiedEtc lists small host files that are copied: what the system is called,
// the time zone, and R's own settings (not the administrator's *.site files).
// They may be links, but only to /etc itself or to /usr.
var copiedEtc = []string{
	"/etc/debian_version",
	"/etc/os-release",
	"/etc/timezone",
	"/etc/localtime",
	"/etc/R/Renviron",
	"/etc/R/ldpaths",
	"/etc/R/repositories",
}

// addFiles makes the files of /etc: invented ones first, then copies.
func (t *Template) addFiles(v *view, php []phpINI) {
	add := func(p, content string) {
		t.Files = append(t.Files, File{Path: p, Mode: 0o644, Content: []byte(content)})
	}
	shell := "/bin/sh"
	if v.executable("/bin/bash", t.sources()) {
		shell = "/bin/bash"
	}
	add("/etc/passwd", fmt.Sprintf(passwd, shell, t.User.Name, t.User.UID, t.User.GID, t.User.Home, shell))
	add("/etc/group", fmt.Sprintf(group, t.User.Name, t.User.GID))
	t.Links = append(t.Links, mtab)
	for _, f := range networkEtc {
		add(f.path, f.content)
	}
	add("/etc/nsswitch.conf", nsswitch)
	add("/etc/protocols", protocols)
	add("/etc/services", services)
	add("/etc/shells", shells(shell))
	if v.executable("/usr/bin/openssl", t.sources()) {
		add("/etc/ssl/openssl.cnf", openssl)
	}
	for _, p := range copiedEtc {
		if content, ok := v.read(p, maxCopy, "/etc", "/usr"); ok {
			add(p, string(content))
		}
	}
	t.addStripped(v)
	for _, ini := range php {
		add(ini.path, ini.content)
	}
}

// mtab is where programs, the JVM among them, look up what is mounted. An image has none:
// whoever makes a container of it makes the link.
var mtab = Link{Target: "../proc/self/mounts", Path: "/etc/mtab"}

// networkEtc says what the sandbox is called, and whom it can reach.
var networkEtc = []struct{ path, content string }{
	{"/etc/hostname", "sandbox\n"},
	{"/etc/hosts", "127.0.0.1\tlocalhost sandbox\n::1\tlocalhost ip6-localhost\n"},
	{"/etc/resolv.conf", "# no name servers: this sandbox has no network\n"},
}

// NetworkFiles is a template of those files alone but for the name, for machines that have
// the others from elsewhere.
func NetworkFiles() (t Template) {
	for _, f := range networkEtc {
		if f.path != "/etc/hostname" {
			t.Files = append(t.Files, File{Path: f.path, Mode: 0o644, Content: []byte(f.content)})
		}
	}
	return t
}

func shells(shell string) string {
	if shell == "/bin/sh" {
		return "/bin/sh\n"
	}
	return "/bin/sh\n" + shell + "\n"
}

// openssl is what the openssl command needs to make keys, requests and
// certificates. The host's own file may name engines and their PINs.
const openssl = `[req]
default_bits = 2048
distinguished_name = req_distinguished_name
x509_extensions = v3_ca
string_mask = utf8only

[req_distinguished_name]
countryName = Country Name (2 letter code)
stateOrProvinceName = State or Province Name (full name)
localityName = Locality Name (eg, city)
0.organizationName = Organization Name (eg, company)
commonName = Common Name (e.g. server FQDN or YOUR name)
emailAddress = Email Address

[v3_req]
basicConstraints = CA:FALSE
keyUsage = nonRepudiation, digitalSignature, keyEncipherment

[v3_ca]
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid:always,issuer
basicConstraints = critical,CA:true
`

const passwd = `root:x:0:0:root:/root:%s
%s:x:%d:%d::%s:%s
nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin
`

const group = `root:x:0:
%s:x:%d:
nogroup:x:65534:
`

// nsswitch keeps name look-ups to the files here: no resolver, no LDAP, no
// systemd, whatever modules the host has.
const nsswitch = `passwd: files
group: files
shadow: files
hosts: files
networks: files
protocols: files
services: files
`

// protocols and services are the few names that programs look up by name
// (numbers from IANA). The host's own lists can be longer, but need not exist.
const protocols = `ip	0	IP
icmp	1	ICMP
tcp	6	TCP
udp	17	UDP
ipv6	41	IPv6
ipv6-icmp	58	IPv6-ICMP
sctp	132	SCTP
`

const services = `echo	7/tcp
echo	7/udp
ftp	21/tcp
ssh	22/tcp
telnet	23/tcp
smtp	25/tcp
domain	53/tcp
domain	53/udp
http	80/tcp	www
pop3	110/tcp
ntp	123/udp
imap2	143/tcp	imap
https	443/tcp
https	443/udp
submission	587/tcp
imaps	993/tcp
mysql	3306/tcp
postgresql	5432/tcp
redis	6379/tcp
http-alt	8080/tcp	webcache
`

type phpINI struct{ path, content string }

const maxPHPFiles = 128

// phpExtension takes the one kind of line of PHP's settings that is wanted:
// "extension=name" or "zend_extension=name". The rest of them may hold passwords
// and licence keys.
func phpExtension(line string) (setting, module string, ok bool) {
	setting, module, ok = strings.Cut(line, "=")
	setting = strings.Trim(setting, " \t")
	module = strings.TrimRight(strings.TrimLeft(module, " \t"), " \t\r")
	module = strings.TrimSuffix(strings.TrimPrefix(module, `"`), `"`)
	name := strings.TrimSuffix(module, ".so")
	ok = ok && (setting == "extension" || setting == "zend_extension") &&
		name != "" && len(name) <= maxPHPName && strings.Trim(name, phpNameLetters) == ""
	return setting, module, ok
}

const (
	phpNameLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_"
	maxPHPName     = 64
)

// phpExtensions makes a php.ini for each PHP of Debian's that the host has: it
// loads the extensions that the host's command-line PHP loads, in its order,
// and says nothing else.
func phpExtensions(v *view) []phpINI {
	var out []phpINI
	cliDirs, _ := fs.Glob(v.root, "etc/php/*/cli")
	for _, dir := range cliDirs {
		files, _ := fs.Glob(v.root, path.Join(dir, "conf.d", "*.ini")) // sorted, as PHP reads them
		var b strings.Builder
		for _, f := range files[:min(len(files), maxPHPFiles)] {
			content, ok := v.read("/"+f, maxCopy, "/etc/php", "/usr")
			if !ok {
				continue
			}
			for line := range strings.SplitSeq(string(content), "\n") {
				if setting, module, ok := phpExtension(line); ok {
					b.WriteString(setting + "=" + module + "\n")
				}
			}
		}
		out = append(out, phpINI{"/" + dir + "/php.ini", b.String()})
	}
	return out
}
