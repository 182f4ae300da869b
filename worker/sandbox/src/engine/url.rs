//! `URL` and `URLSearchParams`, by the `url` crate, which follows the WHATWG standard as browsers do.

use url::{Url, form_urlencoded, quirks};

/// The parts of a URL as a JSON object, or nothing if it isn't one.
pub fn parse(text: &str, base: Option<&str>) -> Option<String> {
    let base = match base {
        Some(base) => Some(Url::parse(base).ok()?),
        None => None,
    };
    Url::options().base_url(base.as_ref()).parse(text).ok().map(|url| parts(&url))
}

/// The parts after one of them is set; nothing if it can't be set so.
pub fn set(href: &str, name: &str, value: &str) -> Option<String> {
    let mut url = Url::parse(href).ok()?;
    let done = match name {
        "href" => quirks::set_href(&mut url, value).is_ok(),
        "protocol" => quirks::set_protocol(&mut url, value).is_ok(),
        "username" => quirks::set_username(&mut url, value).is_ok(),
        "password" => quirks::set_password(&mut url, value).is_ok(),
        "host" => quirks::set_host(&mut url, value).is_ok(),
        "hostname" => quirks::set_hostname(&mut url, value).is_ok(),
        "port" => quirks::set_port(&mut url, value).is_ok(),
        "pathname" => {
            quirks::set_pathname(&mut url, value);
            true
        }
        "search" | "searchParams" => {
            quirks::set_search(&mut url, value);
            true
        }
        "hash" => {
            quirks::set_hash(&mut url, value);
            true
        }
        _ => false,
    };
    done.then(|| parts(&url))
}

fn parts(url: &Url) -> String {
    serde_json::json!({
        "href": quirks::href(url),
        "origin": quirks::origin(url),
        "protocol": quirks::protocol(url),
        "username": quirks::username(url),
        "password": quirks::password(url),
        "host": quirks::host(url),
        "hostname": quirks::hostname(url),
        "port": quirks::port(url),
        "pathname": quirks::pathname(url),
        "search": quirks::search(url),
        "hash": quirks::hash(url),
    })
    .to_string()
}

/// Pairs of `application/x-www-form-urlencoded` as JSON.
pub fn form_parse(text: &str) -> String {
    let pairs: Vec<(String, String)> = form_urlencoded::parse(text.as_bytes()).into_owned().collect();
    serde_json::to_string(&pairs).unwrap_or_else(|_| "[]".into())
}

/// The other way round.
pub fn form_serialize(json: &str) -> String {
    let pairs: Vec<(String, String)> = serde_json::from_str(json).unwrap_or_default();
    form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish()
}
