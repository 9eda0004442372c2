package sandbox

// NetworkUse is what went on with the declared endpoints, as the host saw it, and what
// was denied.
type NetworkUse struct {
	Endpoints []EndpointUse `json:"endpoints"` // those that were declared
	Denied    []Denial      `json:"denied,omitempty"`
	// DeniedMore counts denials of other things than those listed, of which there are
	// at most MaxDenials.
	DeniedMore int64 `json:"denied_more,omitempty"`
}

// EndpointUse is what went on with one endpoint.
type EndpointUse struct {
	Host        string `json:"host"`
	Connections int64  `json:"connections"`        // that programs opened
	Requests    int64  `json:"requests,omitempty"` // that passed, where the host reads them
	Secrets     int64  `json:"secrets,omitempty"`  // of these, that got a secret
	// SecretNames are the secrets that were put into a request, each once.
	SecretNames []string `json:"secret_names,omitempty"`
	BytesUp     int64    `json:"bytes_up"`
	BytesDown   int64    `json:"bytes_down"`
	Errors      int64    `json:"errors"` // connections that came to nothing on the host's side
	// LastError says of the last of them why.
	LastError string `json:"last_error,omitempty"`
}

// Denial is one thing that a program tried and that was refused.
type Denial struct {
	Host   string       `json:"host"`
	Port   int          `json:"port,omitempty"` // 0: a look-up of the name alone
	Reason DenialReason `json:"reason"`
	// Evidence is what was seen: the name that TLS asked for, the address, the method and
	// the path.
	Evidence string `json:"evidence,omitempty"`
	Count    int64  `json:"count"`
	// Hint is how to allow it, and Advice that as data, as in Error.
	Hint   string `json:"hint,omitempty"`
	Advice Advice `json:"advice,omitempty"`
}

// MaxDenials bounds the list of denials.
const MaxDenials = 64

// DenialReason says why something was denied.
type DenialReason string

// The reasons.
const (
	DeniedUndeclared  DenialReason = "not_declared"     // the name is no endpoint
	DeniedAddress     DenialReason = "address"          // the name is at an address that is not public
	DeniedSNI         DenialReason = "sni_mismatch"     // TLS asked for another name
	DeniedNoSNI       DenialReason = "no_sni"           // TLS asked for no name
	DeniedHidden      DenialReason = "hidden_name"      // TLS hides which name it asks for
	DeniedHost        DenialReason = "host_mismatch"    // HTTP asked for another host
	DeniedNotTLS      DenialReason = "not_tls"          // port 443 is for TLS
	DeniedNotHTTP     DenialReason = "not_http"         // port 80 is for HTTP
	DeniedMalformed   DenialReason = "malformed"        // TLS or HTTP that has two readings, or none
	DeniedConnections DenialReason = "max_connections"  // network.limits.connections
	DeniedNoName      DenialReason = "no_name"          // a wildcard is for what says a name: TLS or HTTP
	DeniedNames       DenialReason = "max_names"        // a wildcard has stood for MaxNames names
	DeniedRequests    DenialReason = "max_requests"     // network.limits.requests
	DeniedBytesUp     DenialReason = "max_bytes_up"     // network.limits.bytes_up
	DeniedBytesDown   DenialReason = "max_bytes_down"   // network.limits.bytes_down
	DeniedBusy        DenialReason = "too_many_on_host" // this server's connections or requests at once are all in use, or one sandbox's share
	DeniedRequest     DenialReason = "request"          // the method and the path are not among those declared
	DeniedNarrowed    DenialReason = "narrowed"         // it was declared at first, and the network was narrowed since
)

// DenialReasons lists the reasons.
func DenialReasons() []DenialReason {
	return []DenialReason{
		DeniedUndeclared, DeniedAddress, DeniedSNI, DeniedNoSNI, DeniedHidden, DeniedHost, DeniedNotTLS, DeniedNotHTTP,
		DeniedMalformed, DeniedConnections, DeniedRequests, DeniedBytesUp, DeniedBytesDown, DeniedBusy, DeniedRequest,
		DeniedNoName, DeniedNames, DeniedNarrowed,
	}
}

// WithAdvice returns a copy of d that carries the advice.
func (d Denial) WithAdvice(a Advice) Denial {
	d.Hint, d.Advice = a.attach()
	return d
}
