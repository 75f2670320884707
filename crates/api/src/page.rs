//! Pages of a collection, and the cursor from one to the next.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sonde_results::units::format_hex;

use crate::problem::{ProblemDetails, ProblemKind};

/// A part of a collection, in an order that does not change while it is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(rename = "{T}Page")]
pub struct ListPage<T> {
    /// The items.
    pub items: Vec<T>,
    /// Cursor of the next page; absent: this is the last. It is also in `Link`, as `rel="next"`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// Which page is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRequest {
    limit: usize,
    cursor: Option<String>,
    scope: String,
}

impl PageRequest {
    /// Of the parameters `limit` and `cursor`. `scope` is whatever the cursor is good for: the
    /// operation and its other parameters.
    ///
    /// # Errors
    /// A limit out of 1..=1,000.
    pub fn new(
        limit: Option<u32>,
        cursor: Option<String>,
        scope: String,
    ) -> Result<PageRequest, ProblemDetails> {
        let limit = limit.unwrap_or(LIMIT_DEFAULT);
        if !(1..=LIMIT_MAX).contains(&limit) {
            let why = format!("{limit} is out of range; it is 1 to {LIMIT_MAX}");
            return Err(ProblemDetails::of_parameter(ProblemKind::Unprocessable, "limit", why));
        }
        Ok(PageRequest { limit: limit as usize, cursor, scope })
    }

    /// Items of the page, at most: 1 to 1,000.
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Where the page before ended; `None`: this is the first. It is what was given to
    /// [`PageRequest::page`], but it comes from the client: it may name what is no more.
    ///
    /// # Errors
    /// 400: not a cursor of this collection with these filters.
    pub fn after<K: DeserializeOwned>(&self) -> Result<Option<K>, ProblemDetails> {
        let Some(cursor) = &self.cursor else { return Ok(None) };
        let position = open(cursor, &self.scope);
        position.map(Some).ok_or_else(|| {
            let why = "it is no cursor of this collection with these filters; begin without one";
            ProblemDetails::of_parameter(ProblemKind::Malformed, "cursor", why)
        })
    }

    /// A page; `last` is where it ends, if there is more.
    pub fn page<T>(&self, items: Vec<T>, last: Option<&impl Serialize>) -> ListPage<T> {
        ListPage { items, next: last.and_then(|last| self.next(last)) }
    }

    /// The cursor of the page after one that ends at `last`.
    pub fn next(&self, last: &impl Serialize) -> Option<String> {
        seal(last, &self.scope)
    }

    /// The page of what is in memory, in ascending order of `key`.
    ///
    /// # Errors
    /// As of [`PageRequest::after`].
    pub fn cut<T, K>(
        &self,
        all: impl IntoIterator<Item = T>,
        key: impl Fn(&T) -> K,
    ) -> Result<ListPage<T>, ProblemDetails>
    where
        K: Ord + Serialize + DeserializeOwned,
    {
        let after = self.after::<K>()?;
        let follows = |item: &T| after.as_ref().is_none_or(|after| key(item) > *after);
        let mut items: Vec<T> =
            all.into_iter().filter(follows).take(self.limit.saturating_add(1)).collect();
        let more = items.len() > self.limit;
        items.truncate(self.limit);
        let last = items.last().filter(|_| more).map(key);
        Ok(self.page(items, last.as_ref()))
    }
}

/// A cursor: the position in JSON and a checksum over it and the scope, in hexadecimal digits.
///
/// The checksum finds what was cut short, made by hand or is of another collection. It is no
/// secret: a position gives no right that its caller has not.
fn seal(position: &impl Serialize, scope: &str) -> Option<String> {
    let json = serde_json::to_vec(position).ok()?;
    let mut text = format_hex(&json);
    text.push_str(&format!("{:016x}", checksum(&json, scope)));
    Some(text)
}

fn open<K: DeserializeOwned>(cursor: &str, scope: &str) -> Option<K> {
    if cursor.len() > CURSOR_MAX || !cursor.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    {
        return None;
    }
    let (json, sum) = cursor.split_at_checked(cursor.len().checked_sub(16)?)?;
    let pairs = json.as_bytes().chunks_exact(2);
    if !pairs.remainder().is_empty() {
        return None;
    }
    let digit = |b: u8| char::from(b).to_digit(16).map_or(0, |d| d as u8);
    let json: Vec<u8> = pairs.map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect();
    let right = u64::from_str_radix(sum, 16) == Ok(checksum(&json, scope));
    right.then(|| serde_json::from_slice(&json).ok()).flatten()
}

/// FNV-1a, 64 bits.
fn checksum(position: &[u8], scope: &str) -> u64 {
    let octets = scope.bytes().chain([0]).chain(position.iter().copied());
    octets.fold(0xcbf2_9ce4_8422_2325, |hash, octet| {
        (hash ^ u64::from(octet)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// Items of a page where the client does not say.
pub const LIMIT_DEFAULT: u32 = 100;
/// Items of a page, at most.
pub const LIMIT_MAX: u32 = 1_000;
/// Characters of a cursor, at most.
const CURSOR_MAX: usize = 2_048;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn ask(limit: u32, cursor: Option<String>) -> PageRequest {
        PageRequest::new(Some(limit), cursor, "units?state=running".into()).unwrap()
    }

    #[test]
    fn pages_together_are_the_whole_and_what_is_added_meanwhile_moves_none() {
        let mut names: Vec<u32> = (0..25).map(|n| n * 2).collect();
        let (mut seen, mut cursor, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = ask(10, cursor).cut(names.clone(), |n| *n).unwrap();
            seen.extend(page.items);
            pages += 1;
            // Before the position: no item is seen twice for it.
            names.insert(0, pages);
            names.sort_unstable();
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
        assert_eq!((seen, pages), ((0..25).map(|n| n * 2).collect(), 3));
    }

    #[test]
    fn a_full_last_page_has_no_next() {
        let page = ask(3, None).cut([1, 2, 3], |n| *n).unwrap();
        assert_eq!((page.items.len(), page.next), (3, None));
    }

    #[test]
    fn a_cursor_of_other_filters_or_another_form_is_a_400() {
        let cursor = ask(1, None).cut(["a", "b"].map(String::from), String::clone).unwrap().next;
        let other = PageRequest::new(None, cursor.clone(), "units?state=done".into()).unwrap();
        let status = |asked: &PageRequest| asked.after::<String>().err().map(|p| p.status);
        assert_eq!(status(&other), Some(400));
        assert_eq!(status(&ask(1, cursor.clone())), None);
        // Of another type: a cursor of a version that sorted otherwise.
        assert_eq!(ask(1, cursor).after::<(u64, u64)>().err().map(|p| p.status), Some(400));
        for wrong in ["", "00", "zz", "é", &"0".repeat(4_000)] {
            assert_eq!(status(&ask(1, Some(wrong.into()))), Some(400), "{wrong}");
        }
    }

    #[test]
    fn a_limit_has_a_range() {
        let status = |limit| PageRequest::new(limit, None, String::new()).err().map(|p| p.status);
        assert_eq!((status(Some(0)), status(Some(1_001))), (Some(422), Some(422)));
        assert_eq!(PageRequest::new(None, None, String::new()).unwrap().limit(), 100);
    }

    proptest! {
        #[test]
        fn a_cursor_with_one_character_changed_is_refused(at in 0..1_000usize, by in 1..16u32, text in "[a-z]{1,20}") {
            let mut cursor = seal(&text, "s").unwrap().into_bytes();
            let at = at % cursor.len();
            let digit = char::from(cursor[at]).to_digit(16).unwrap();
            cursor[at] = char::from_digit((digit + by) % 16, 16).unwrap() as u8;
            let cursor = String::from_utf8(cursor).unwrap();
            prop_assert_eq!(open::<String>(&cursor, "s"), None);
        }
    }
}
