//! Versions of resources (RFC 9110, sections 8.8.3 and 13.1) and keys of requests.

use std::fmt;

use crate::problem::{ProblemDetails, ProblemKind};

/// An entity tag.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EntityTag {
    weak: bool,
    opaque: String,
}

/// What `If-Match` or `If-None-Match` lists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TagCondition {
    /// `*`: any version.
    Any,
    /// One of these.
    OneOf(Vec<EntityTag>),
}

/// A key by which a client marks tries of one and the same change (`Idempotency-Key`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdempotencyKey(String);

impl EntityTag {
    /// A strong one, of a version that a change can name. Characters that a tag cannot have are
    /// left out.
    pub fn strong(version: impl fmt::Display) -> EntityTag {
        let opaque = version.to_string().chars().filter(|&c| is_tag_char(c)).collect();
        EntityTag { weak: false, opaque }
    }

    /// A weak one: of what looks the same, in whatever encoding.
    pub fn weak(version: impl fmt::Display) -> EntityTag {
        EntityTag { weak: true, ..EntityTag::strong(version) }
    }

    /// Whether it is a weak one.
    pub fn is_weak(&self) -> bool {
        self.weak
    }

    /// Equal, and both strong.
    pub fn matches_strongly(&self, other: &EntityTag) -> bool {
        !self.weak && !other.weak && self.opaque == other.opaque
    }

    /// Equal, weak or not.
    pub fn matches_weakly(&self, other: &EntityTag) -> bool {
        self.opaque == other.opaque
    }
}

impl fmt::Display for EntityTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\"{}\"", if self.weak { "W/" } else { "" }, self.opaque)
    }
}

impl TagCondition {
    /// Reads a field's value. `None`: it is not one.
    pub fn parse(text: &str) -> Option<TagCondition> {
        let mut rest = text.trim();
        if rest == "*" {
            return Some(TagCondition::Any);
        }
        let mut tags = Vec::new();
        loop {
            let (weak, quoted) =
                rest.strip_prefix("W/").map_or((false, rest), |quoted| (true, quoted));
            let (opaque, after) = quoted.strip_prefix('"')?.split_once('"')?;
            if !opaque.chars().all(is_tag_char) || tags.len() >= TAGS_MAX {
                return None;
            }
            tags.push(EntityTag { weak, opaque: opaque.to_owned() });
            let after = after.trim_start();
            if after.is_empty() {
                return Some(TagCondition::OneOf(tags));
            }
            rest = after.strip_prefix(',')?.trim_start();
        }
    }

    /// For `If-Match`: compares strongly (RFC 9110, section 13.1.1).
    pub fn allows_change_of(&self, current: &EntityTag) -> bool {
        match self {
            TagCondition::Any => true,
            TagCondition::OneOf(tags) => tags.iter().any(|tag| tag.matches_strongly(current)),
        }
    }

    /// For `If-None-Match`: compares weakly (section 13.1.2).
    pub fn has(&self, current: &EntityTag) -> bool {
        match self {
            TagCondition::Any => true,
            TagCondition::OneOf(tags) => tags.iter().any(|tag| tag.matches_weakly(current)),
        }
    }

    /// Whether a change that named `given` may be made to the version `current`.
    ///
    /// # Errors
    /// 428 where it named none; 412 where the version is another by now.
    pub fn check(given: Option<&TagCondition>, current: &EntityTag) -> Result<(), ProblemDetails> {
        match given {
            None => Err(ProblemDetails::new(
                ProblemKind::PreconditionRequired,
                "this change needs `If-Match`; read the resource and send its ETag",
            )),
            Some(given) if given.allows_change_of(current) => Ok(()),
            Some(_) => Err(ProblemDetails::new(
                ProblemKind::Stale,
                format!("it is version {current} by now; read it again, and send that ETag"),
            )),
        }
    }
}

impl IdempotencyKey {
    /// Reads a field's value: a string in quotes, or plain. `None`: empty, longer than 128, or
    /// with other characters than visible ones of ASCII.
    pub fn parse(text: &str) -> Option<IdempotencyKey> {
        let text = text.trim();
        let bare = text.strip_prefix('"').and_then(|t| t.strip_suffix('"')).unwrap_or(text);
        let plain = bare.bytes().all(|b| b.is_ascii_graphic() && b != b'"' && b != b'\\');
        (plain && (1..=KEY_MAX).contains(&bare.len())).then(|| IdempotencyKey(bare.to_owned()))
    }

    /// The key.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// RFC 9110, section 8.8.3: etagc, without octets beyond ASCII.
fn is_tag_char(c: char) -> bool {
    c.is_ascii_graphic() && c != '"'
}

/// Tags of one field, at most.
const TAGS_MAX: usize = 32;
/// Characters of a key, at most.
const KEY_MAX: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn tags_are_compared_as_rfc_9110_has_it() {
        // Section 8.8.3.2: the table of comparisons.
        let (w1, w2) = (EntityTag::weak(1), EntityTag::weak(2));
        let s1 = EntityTag::strong(1);
        for (a, b, strong, weak) in [
            (&w1, &w1, false, true),
            (&w1, &w2, false, false),
            (&w1, &s1, false, true),
            (&s1, &s1, true, true),
        ] {
            assert_eq!(a.matches_strongly(b), strong, "{a} {b}");
            assert_eq!(a.matches_weakly(b), weak, "{a} {b}");
        }
    }

    #[test]
    fn a_list_of_tags_is_read_and_nonsense_refused() {
        let parsed = TagCondition::parse(" W/\"a,b\" , \"c\"").unwrap();
        let tags = vec![EntityTag::weak("a,b"), EntityTag::strong("c")];
        assert_eq!(parsed, TagCondition::OneOf(tags));
        assert_eq!(TagCondition::parse("*"), Some(TagCondition::Any));
        assert_eq!(
            TagCondition::parse("\"\""),
            Some(TagCondition::OneOf(vec![EntityTag::strong("")]))
        );
        for wrong in ["", "a", "\"a", "\"a\" \"b\"", "\"a\",", "w/\"a\"", "\"a b\"", "\"ü\""] {
            assert_eq!(TagCondition::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_change_names_the_version_that_it_changes() {
        let (now, before) = (EntityTag::strong("v8"), TagCondition::parse("\"v7\"").unwrap());
        let status = |given: Option<&TagCondition>| {
            TagCondition::check(given, &now).err().map(|problem| problem.status)
        };
        assert_eq!(status(None), Some(428));
        assert_eq!(status(Some(&before)), Some(412));
        assert_eq!(status(Some(&TagCondition::parse("W/\"v8\"").unwrap())), Some(412));
        assert_eq!(status(Some(&TagCondition::parse("\"v7\", \"v8\"").unwrap())), None);
        assert_eq!(status(Some(&TagCondition::Any)), None);
    }

    #[test]
    fn a_key_is_short_and_visible() {
        assert_eq!(IdempotencyKey::parse("\"8e03-97\"").unwrap().as_str(), "8e03-97");
        assert_eq!(IdempotencyKey::parse(" 8e03-97 ").unwrap().as_str(), "8e03-97");
        for wrong in ["", "\"\"", "a b", "ü", "a\"b", &"x".repeat(129)] {
            assert_eq!(IdempotencyKey::parse(wrong), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(weak in any::<bool>(), text in "[!#-~]{0,20}") {
            let tag = if weak { EntityTag::weak(text) } else { EntityTag::strong(text) };
            let parsed = TagCondition::parse(&tag.to_string());
            prop_assert_eq!(parsed, Some(TagCondition::OneOf(vec![tag])));
        }

        #[test]
        fn any_text_is_a_condition_or_none(text in ".{0,60}") {
            let _ = (TagCondition::parse(&text), IdempotencyKey::parse(&text));
        }
    }
}
