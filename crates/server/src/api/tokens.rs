//! Tokens: who may ask for what, and until when. What is kept is their hashes.

use std::fmt;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::{PoisonError, RwLock};

use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom as _, SystemRandom};
use sonde_api::instant::UtcInstant;
use sonde_api::{AccessRole, Caller};
use sonde_results::units::format_hex;

/// The tokens that a server knows. They can be replaced while it serves.
#[derive(Debug, Default)]
pub struct TokenStore(RwLock<Vec<ApiToken>>);

/// A token without itself.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiToken {
    /// Its name, unique; it stands beside what was changed with it.
    pub name: String,
    /// What it allows.
    pub role: AccessRole,
    /// The first instant at which it is no good any more; `None`: there is none.
    pub expires: Option<UtcInstant>,
    /// SHA-256 of its text.
    hash: [u8; 32],
}

/// Why a file gives no tokens.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// It cannot be read.
    #[error("{path}: {cause}")]
    Read {
        /// The file.
        path: String,
        /// What the kernel says.
        cause: std::io::Error,
    },
    /// Others may read or change it.
    #[error("{path}: {why}; whoever may read or change it decides who is let in: {next}")]
    Exposed {
        /// The file.
        path: String,
        /// Who.
        why: String,
        /// What to do.
        next: String,
    },
    /// A line is no token.
    #[error("{path}, line {line}: {why}; a line is NAME ROLE EXPIRY SHA256")]
    Line {
        /// The file.
        path: String,
        /// From 1.
        line: usize,
        /// What is wrong.
        why: String,
    },
}

/// What a shown token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum TokenCheck {
    /// Good until then.
    Valid(Caller, Option<UtcInstant>),
    /// It was good until then.
    Expired(UtcInstant),
    /// No token of this server.
    Unknown,
}

impl TokenStore {
    /// With these; of two with one name the later counts.
    pub fn of(tokens: Vec<ApiToken>) -> TokenStore {
        TokenStore(RwLock::new(tokens))
    }

    /// Those of a file, see [`parse_tokens`]. Nobody but its owner may write it, and nobody but
    /// its owner and group read it; the owner is root or this process's user.
    ///
    /// # Errors
    /// It cannot be read, others have access to it, a line is wrong.
    pub fn read(path: &Path) -> Result<TokenStore, TokenFileError> {
        let shown = path.display().to_string();
        let failed = |cause| TokenFileError::Read { path: shown.clone(), cause };
        let mut file = std::fs::File::open(path).map_err(failed)?;
        // Of what was opened, not of what stands there by now.
        let meta = file.metadata().map_err(failed)?;
        let own = std::fs::metadata("/proc/self").map_err(failed)?.uid();
        check_access(&shown, meta.mode(), meta.uid(), own)?;
        let mut text = String::new();
        file.by_ref().take(FILE_MAX).read_to_string(&mut text).map_err(failed)?;
        Ok(TokenStore::of(parse_tokens(&shown, &text)?))
    }

    /// Takes others in place of these; requests under way go on.
    pub fn replace(&self, other: TokenStore) {
        let new = other.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = new;
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Whose token it is. It takes the same time whichever it is and however much of it is right:
    /// hashes are compared, all of them, and whole.
    pub(super) fn check(&self, shown: &[u8], now: UtcInstant) -> TokenCheck {
        let hash = hash_of(shown);
        let tokens = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        for token in tokens.iter() {
            let differ = token.hash.iter().zip(hash).fold(0, |all, (a, b)| all | (a ^ b));
            if std::hint::black_box(differ) == 0 {
                found = Some(token);
            }
        }
        match found {
            None => TokenCheck::Unknown,
            Some(ApiToken { expires: Some(at), .. }) if now >= *at => TokenCheck::Expired(*at),
            Some(token) => {
                let caller = Caller { name: token.name.clone(), role: token.role };
                TokenCheck::Valid(caller, token.expires)
            }
        }
    }
}

impl ApiToken {
    /// A new token, and its text, which is shown once and kept nowhere.
    ///
    /// # Errors
    /// A name that is none: 1 to 64 letters, digits, `-`, `_`, `.`; no randomness to be had.
    pub fn issue(
        name: &str,
        role: AccessRole,
        expires: Option<UtcInstant>,
    ) -> Result<(ApiToken, String), String> {
        let mut octets = [0; 32];
        if !is_name(name) {
            return Err(format!("'{name}' is no name: 1 to 64 letters, digits, '-', '_', '.'"));
        }
        let filled = SystemRandom::new().fill(&mut octets);
        filled.map_err(|_| "the kernel gives no randomness; try again".to_owned())?;
        let digits = format_hex(&octets);
        // Found by who looks for secrets in files.
        let text = format!("sonde_{digits}");
        let hash = hash_of(text.as_bytes());
        Ok((ApiToken { name: name.to_owned(), role, expires, hash }, text))
    }

    /// Its line in a file.
    pub fn line(&self) -> String {
        let expires = self.expires.map_or("never".to_owned(), |at| at.to_string());
        let hash = format_hex(&self.hash);
        format!("{} {} {expires} {hash}", self.name, self.role)
    }
}

impl fmt::Debug for ApiToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ApiToken({} {})", self.name, self.role)
    }
}

/// The tokens of a text: a line each, `NAME ROLE EXPIRY SHA256`, where the expiry is RFC 3339 or
/// `never` and the hash has 64 hexadecimal digits. Empty lines and those with `#` are none.
///
/// # Errors
/// The first line that is something else, or whose name was there before.
pub fn parse_tokens(path: &str, text: &str) -> Result<Vec<ApiToken>, TokenFileError> {
    let mut tokens: Vec<ApiToken> = Vec::new();
    for (i, line) in text.lines().enumerate() {
        let line_text = line.trim();
        if line_text.is_empty() || line_text.starts_with('#') {
            continue;
        }
        let wrong = |why: String| TokenFileError::Line { path: path.to_owned(), line: i + 1, why };
        let token = parse_line(line_text).map_err(wrong)?;
        if tokens.iter().any(|before| before.name == token.name) {
            return Err(wrong(format!("'{}' is there twice", token.name)));
        }
        tokens.push(token);
    }
    Ok(tokens)
}

fn parse_line(line: &str) -> Result<ApiToken, String> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    // A line may be a token by mistake: it is not said again.
    let [name, role, expires, hash] = fields.as_slice() else {
        return Err(format!("it has {} fields, not 4", fields.len()));
    };
    if !is_name(name) {
        return Err("the name has 1 to 64 letters, digits, '-', '_', '.'".to_owned());
    }
    let role = AccessRole::of_name(role).ok_or("the role is read, operate or admin")?;
    let expires = match *expires {
        "never" => None,
        at => Some(UtcInstant::parse(at).map_err(|error| error.to_string())?),
    };
    let hash = hash_from(hash).ok_or("the hash has 64 hexadecimal digits")?;
    Ok(ApiToken { name: (*name).to_owned(), role, expires, hash })
}

fn check_access(path: &str, mode: u32, owner: u32, own: u32) -> Result<(), TokenFileError> {
    let exposed = |why: String, next: String| {
        Err(TokenFileError::Exposed { path: path.to_owned(), why, next })
    };
    if owner != 0 && owner != own {
        return exposed(format!("user {owner} owns it"), format!("chown root {path}"));
    }
    if mode & 0o027 != 0 {
        let why = format!("its mode is {:03o}", mode & 0o777);
        return exposed(why, format!("chmod 640 {path}"));
    }
    Ok(())
}

fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    (1..=64).contains(&name.len()) && name.bytes().all(plain)
}

pub(super) fn hash_of(octets: &[u8]) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, octets).as_ref());
    hash
}

fn hash_from(digits: &str) -> Option<[u8; 32]> {
    if digits.len() != 64 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
        return None;
    }
    let mut hash = [0; 32];
    for (octet, pair) in hash.iter_mut().zip(digits.as_bytes().chunks(2)) {
        *octet = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(hash)
}

/// Octets of a file of tokens that are read.
const FILE_MAX: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> UtcInstant {
        UtcInstant::from_ms(ms)
    }

    #[test]
    fn a_token_is_good_until_it_expires_and_another_never() {
        let (token, text) = ApiToken::issue("desk", AccessRole::Operate, Some(at(1_000))).unwrap();
        let (other, _) = ApiToken::issue("page", AccessRole::Read, None).unwrap();
        let store = TokenStore::of(vec![other, token]);
        let caller = Caller { name: "desk".into(), role: AccessRole::Operate };
        let valid = TokenCheck::Valid(caller, Some(at(1_000)));
        assert_eq!(store.check(text.as_bytes(), at(999)), valid);
        assert_eq!(store.check(text.as_bytes(), at(1_000)), TokenCheck::Expired(at(1_000)));
        for wrong in ["", &text[..text.len() - 1], &format!("{text}0"), "sonde_"] {
            assert_eq!(store.check(wrong.as_bytes(), at(0)), TokenCheck::Unknown, "{wrong}");
        }
        store.replace(TokenStore::default());
        assert_eq!(store.check(text.as_bytes(), at(0)), TokenCheck::Unknown);
        assert!(store.is_empty());
    }

    #[test]
    fn a_file_has_hashes_and_is_read_back() {
        let (token, text) = ApiToken::issue("desk", AccessRole::Admin, Some(at(1_500))).unwrap();
        let line = token.line();
        assert!(!line.contains(&text) && !format!("{token:?}").contains(&line[30..]));
        assert!(line.starts_with("desk admin 1970-01-01T00:00:01.500Z "));
        let file = format!("# tokens\n\n{line}\nprom read never {}\n", "0".repeat(64));
        let tokens = parse_tokens("f", &file).unwrap();
        assert_eq!((tokens.len(), &tokens[0]), (2, &token));
        // As `sha256sum` has it.
        let hash = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824";
        let known = parse_tokens("f", &format!("a read never {hash}")).unwrap();
        assert!(matches!(TokenStore::of(known).check(b"hello", at(0)), TokenCheck::Valid(..)));
    }

    #[test]
    fn a_wrong_line_is_named_and_not_repeated() {
        let hash = "0".repeat(64);
        for (text, part) in [
            ("sonde_secret", "line 1: it has 1 fields"),
            (&*format!("\na root never {hash}"), "line 2: the role"),
            (&format!("a read soon {hash}"), "'soon' is no instant"),
            (&format!("a read never {}", "0".repeat(63)), "64 hexadecimal"),
            (&format!("a b/ never {hash}"), "the role"),
            (&format!("a/ read never {hash}"), "the name"),
            (&format!("a read never {hash}\na read never {hash}"), "line 2: 'a' is there twice"),
        ] {
            let why = parse_tokens("f", text).unwrap_err().to_string();
            assert!(why.contains(part) && !why.contains("secret"), "{why}");
        }
    }

    #[test]
    fn a_file_that_others_can_read_or_change_is_refused() {
        for (mode, owner, good) in [
            (0o100600, 0, true),
            (0o100640, 0, true),
            (0o100400, 7, true),
            (0o100644, 0, false),
            (0o100660, 0, false),
            (0o100602, 0, false),
            (0o100600, 8, false),
        ] {
            assert_eq!(check_access("f", mode, owner, 7).is_ok(), good, "{mode:o} {owner}");
        }
        let path = std::env::temp_dir().join(format!("sonde-tokens-{}", std::process::id()));
        std::fs::write(&path, "a read never x").unwrap();
        let set = |mode| {
            use std::os::unix::fs::PermissionsExt as _;
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
            TokenStore::read(&path).unwrap_err().to_string()
        };
        assert!(set(0o644).contains("chmod 640"));
        assert!(set(0o600).contains("line 1"));
        std::fs::remove_file(&path).unwrap();
        assert!(matches!(TokenStore::read(&path), Err(TokenFileError::Read { .. })));
    }
}
