//! A strict reader of the XML that JUnit files are made of, written apart from the crate that writes them.
//!
//! It knows elements, attributes, the five entities, character references and CDATA, and takes nothing else: no
//! comments, no document types. All rules of XML 1.0 on characters, nesting, quoting and `]]>` hold.

#[derive(Debug, Default, Clone)]
pub struct Element {
    pub name: String,
    pub attributes: Vec<(String, String)>,
    pub children: Vec<Element>,
    pub text: String,
}

impl Element {
    pub fn attribute(&self, name: &str) -> &str {
        self.attributes.iter().find(|(n, _)| n == name).map_or("", |(_, v)| v)
    }

    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|c| c.name == name)
    }

    pub fn all(&self, name: &str) -> Vec<&Element> {
        self.children.iter().filter(|c| c.name == name).collect()
    }
}

/// The root element, or what is wrong.
pub fn parse(bytes: &[u8]) -> Result<Element, String> {
    let text = std::str::from_utf8(bytes).map_err(|e| e.to_string())?;
    if let Some(c) = text.chars().find(|c| !allowed(*c)) {
        return Err(format!("character {:#x} is not allowed in XML 1.0", u32::from(c)));
    }
    let rest = text.strip_prefix("<?xml version=\"1.0\" encoding=\"utf-8\"?>").ok_or("no declaration")?;
    let (root, rest) = element(rest.trim_start())?;
    if rest.trim().is_empty() { Ok(root) } else { Err(format!("text after the root: {rest:.40}")) }
}

fn allowed(c: char) -> bool {
    matches!(c, '\t' | '\n' | '\r' | '\u{20}'..='\u{d7ff}' | '\u{e000}'..='\u{fffd}' | '\u{10000}'..)
}

fn element(text: &str) -> Result<(Element, &str), String> {
    let mut rest = text.strip_prefix('<').ok_or_else(|| format!("no element at {text:.40}"))?;
    let mut out = Element::default();
    (out.name, rest) = name(rest)?;
    loop {
        let trimmed = rest.trim_start();
        if let Some(after) = trimmed.strip_prefix("/>") {
            return Ok((out, after));
        }
        if let Some(after) = trimmed.strip_prefix('>') {
            rest = after;
            break;
        }
        if trimmed.len() == rest.len() {
            return Err(format!("no space before attribute: {rest:.40}"));
        }
        let (key, after) = name(trimmed)?;
        let after = after.strip_prefix("=\"").ok_or_else(|| format!("no value at {after:.40}"))?;
        let (value, after) = after.split_once('"').ok_or("attribute without end")?;
        if out.attributes.iter().any(|(k, _)| *k == key) {
            return Err(format!("attribute {key} twice"));
        }
        out.attributes.push((key, plain(value)?));
        rest = after;
    }
    loop {
        if let Some(after) = rest.strip_prefix("</") {
            let (end, after) = name(after)?;
            if end != out.name {
                return Err(format!("<{}> ended by </{end}>", out.name));
            }
            return after.trim_start().strip_prefix('>').map(|a| (out, a)).ok_or_else(|| "end tag without >".into());
        }
        if let Some(after) = rest.strip_prefix("<![CDATA[") {
            let (data, after) = after.split_once("]]>").ok_or("CDATA without end")?;
            out.text.push_str(data);
            rest = after;
        } else if rest.starts_with('<') {
            let (child, after) = element(rest)?;
            out.children.push(child);
            rest = after;
        } else {
            let end = rest.find('<').ok_or_else(|| format!("<{}> without end", out.name))?;
            let (data, after) = rest.split_at(end);
            if data.contains("]]>") {
                return Err("]]> outside of CDATA".into());
            }
            out.text.push_str(&plain(data)?);
            rest = after;
        }
    }
}

fn name(text: &str) -> Result<(String, &str), String> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_')).unwrap_or(text.len());
    if end == 0 { Err(format!("no name at {text:.40}")) } else { Ok((text[..end].to_owned(), &text[end..])) }
}

/// Text without markup, with its references replaced.
fn plain(text: &str) -> Result<String, String> {
    if text.contains('<') {
        return Err(format!("< in text: {text:.40}"));
    }
    let mut parts = text.split('&');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (entity, rest) = part.split_once(';').ok_or("& without ;")?;
        let number = |digits: &str, radix| u32::from_str_radix(digits, radix).ok().and_then(char::from_u32);
        out.push(match entity {
            "lt" => '<',
            "gt" => '>',
            "amp" => '&',
            "quot" => '"',
            "apos" => '\'',
            e => e
                .strip_prefix("#x")
                .map_or_else(|| e.strip_prefix('#').and_then(|d| number(d, 10)), |d| number(d, 16))
                .filter(|c| allowed(*c))
                .ok_or_else(|| format!("&{e}; is no reference"))?,
        });
        out.push_str(rest);
    }
    Ok(out)
}

#[test]
fn the_reader_refuses_what_is_malformed() {
    let parse = |body: &str| parse(format!("<?xml version=\"1.0\" encoding=\"utf-8\"?>{body}").as_bytes());
    assert_eq!(parse("<a b=\"1 &lt; 2\"><c/>x<![CDATA[<&]]></a>").unwrap().text, "x<&");
    for bad in [
        "<a>",
        "<a></b>",
        "<a>\x1b</a>",
        "<a>\0</a>",
        "<a>\u{ffff}</a>",
        "<a>]]></a>",
        "<a><![CDATA[x]]>y]]></a>",
        "<a>&x;</a>",
        "<a>& b</a>",
        "<a>&#0;</a>",
        "<a b=\"<\"/>",
        "<a b=\"1\" b=\"2\"/>",
        "<a b=\"1\"c=\"2\"/>",
        "<a/><b/>",
        "<a/>x",
    ] {
        assert!(parse(bad).is_err(), "{bad:?}");
    }
}
