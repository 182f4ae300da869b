//! Which URLs a plugin may reach: http and https, to a host of its manifest, on a port where such services are.

use toolfleet_protocol::EgressRule;
use toolfleet_protocol::host::{HostError, HostErrorName};
use url::{Host, Url};

/// Ports below this are other protocols' but for 80 and 443: a plugin shall not speak HTTP to a mail server.
const PORT_MIN: u16 = 1024;

/// Reads a URL and checks it against the rules.
pub fn check(text: &str, rules: &[EgressRule]) -> Result<Url, HostError> {
    let url = Url::parse(text).map_err(|error| {
        HostError::new(HostErrorName::TypeError, format!("host.fetch: request.url is no URL: {error}"))
    })?;
    check_url(&url, rules)?;
    Ok(url)
}

/// As [`check`], for a URL that is one already.
pub fn check_url(url: &Url, rules: &[EgressRule]) -> Result<(), HostError> {
    let refused = |why: String| Err(HostError::new(HostErrorName::EgressError, format!("host.fetch: {why}")));
    if !matches!(url.scheme(), "http" | "https") {
        return refused(format!("{}: is not fetched, only http: and https: are", url.scheme()));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return refused("a URL with a user or a password is not fetched: give an Authorization header".into());
    }
    let host = match url.host() {
        Some(Host::Domain(host)) => host,
        Some(Host::Ipv4(address)) => {
            return refused(format!("{address} is an address: only hosts that manifest.egress names are reached"));
        }
        Some(Host::Ipv6(address)) => {
            return refused(format!("{address} is an address: only hosts that manifest.egress names are reached"));
        }
        None => return refused("the URL names no host".into()),
    };
    if !rules.iter().any(|rule| rule.allows(host)) {
        return refused(format!("{host} is not in manifest.egress: add it there and publish again"));
    }
    match url.port_or_known_default() {
        Some(80 | 443) => Ok(()),
        Some(port) if port >= PORT_MIN => Ok(()),
        _ => refused(format!("port {} is not reached: only 80, 443 and from {PORT_MIN} on", url.port().unwrap_or(0))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allowed(url: &str, rule: &str) -> bool {
        match check(url, &[EgressRule::parse(rule).unwrap()]) {
            Ok(_) => true,
            Err(error) => {
                assert!(matches!(error.name, HostErrorName::EgressError | HostErrorName::TypeError), "{url}: {error}");
                false
            }
        }
    }

    #[test]
    fn a_url_is_judged_by_the_host_that_would_be_reached() {
        let rule = "api.example.com";
        for good in [
            "https://api.example.com/",
            "http://API.EXAMPLE.COM./",
            "https://api.example.com:8443/x",
            "https://api.example.com/#@evil.test",
            "http://ⓐpi.example.com/",
            "http://api\u{ad}.example.com/",
        ] {
            assert!(allowed(good, rule), "{good}");
        }
        for bad in [
            "http://127.1/",
            "http://0x7f000001/",
            "http://2130706433/",
            "http://0177.0.0.1/",
            "http://[::1]/",
            "http://[::ffff:127.0.0.1]/",
            "http://[fe80::1%25lo]/",
            "http://[64:ff9b::7f00:1]/",
            "http://169.254.169.254/latest",
            "http://metadata.google.internal/",
            "http://100.64.0.1/",
            "http://0.0.0.0/",
            "http://localhost/",
            "http://api.example.com.evil.test/",
            "http://evil.test#@api.example.com/",
            "http://api.example.com@evil.test/",
            "http://evil.test\\@api.example.com/",
            "http://api.example.com:22/",
            "http://user@api.example.com/",
            "http://аpi.example.com/",
            "file:///etc/passwd",
            "gopher://api.example.com/",
            "data:text/plain,x",
            "javascript:1",
            "unix:/x",
            "",
            "api.example.com",
            "http:///x",
        ] {
            assert!(!allowed(bad, rule), "{bad}");
        }
        assert!(allowed("http://a.b.example.com/", "*.example.com"));
        for bad in ["http://example.com/", "http://xexample.com/", "http://example.com./"] {
            assert!(!allowed(bad, "*.example.com"), "{bad}");
        }
    }
}
