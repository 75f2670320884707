//! The token that clients of `sonde otg` show: drawn, or kept in a file of its owner's.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, ensure};
use ring::rand::{SecureRandom as _, SystemRandom};
use sonde_results::units::format_hex;
use sonde_run::error::{RunError, SettingsError};
use sonde_server::http::{TOKEN_MIN, Token};

/// The token of the file, which is made where there is none; without a file another one each
/// time.
///
/// # Errors
/// `Settings`: a file that cannot be read, that others can read, or that holds no token. `Host`: one
/// that cannot be made.
pub fn of(file: Option<&Path>) -> Result<Token, RunError> {
    let Some(path) = file else { return Ok(drawn()?) };
    let named = || format!("`token_file`: {}", path.display());
    let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    match made {
        Ok(mut file) => {
            let token = drawn()?;
            file.write_all(format!("{}\n", token.text()).as_bytes()).with_context(named)?;
            Ok(token)
        }
        Err(e) if e.kind() == ErrorKind::AlreadyExists => read(path).map_err(|e| {
            let file = path.display().to_string();
            let wrong = SettingsError::new("token_file", format!("{file}: {e:#}"));
            RunError::Settings(SettingsError { file: Some(file), ..wrong })
        }),
        Err(e) => Ok(Err(e).with_context(named)?),
    }
}

/// What holds no token may be of use to others, who read it: nothing is to be done to it.
fn read(path: &Path) -> Result<Token> {
    // A folder, a device, or a pipe, whose open would wait.
    ensure!(fs::metadata(path)?.is_file(), "is no file; name another");
    let file = File::open(path)?;
    let mode = file.metadata()?.mode();
    let mut text = String::new();
    file.take(LONGEST)
        .read_to_string(&mut text)
        .context("holds no text; name a file that is not there, and it is made")?;
    // Some editors put a byte order mark before the text.
    let token = Token::new(text.trim_start_matches('\u{feff}').trim()).with_context(|| {
        format!(
            "holds no token: at least {TOKEN_MIN} letters, digits and -._~; name a file that is \
             not there, and it is made"
        )
    })?;
    ensure!(mode & 0o077 == 0, "others can read or write it; 'chmod 600 {}'", path.display());
    Ok(token)
}

fn drawn() -> Result<Token> {
    let mut octets = [0; 16];
    SystemRandom::new()
        .fill(&mut octets)
        .map_err(|_| anyhow!("the kernel gives no random numbers (getrandom)"))?;
    let text = format_hex(&octets);
    Token::new(&text).context("a token that is none")
}

/// Octets of a token's file, at most.
const LONGEST: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_file_keeps_one_token_for_its_owner_alone() {
        let name = format!("sonde-token-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = fs::remove_file(&path);
        let first = of(Some(&path)).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        assert!(of(Some(&path)).unwrap() == first);
        assert!(of(None).unwrap() != of(None).unwrap());
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let open = of(Some(&path)).unwrap_err();
        assert!(matches!(&open, RunError::Settings(e) if e.key.as_deref() == Some("token_file")));
        assert!(open.to_string().contains("chmod 600"), "{open}");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "short\n").unwrap();
        let short = format!("{:#}", of(Some(&path)).unwrap_err());
        assert!(short.contains("16 letters"), "{short}");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn nothing_is_to_be_done_to_what_is_no_file_of_a_token() {
        for path in ["/dev/null", "/tmp", "/etc/passwd"] {
            let wrong = format!("{:#}", of(Some(Path::new(path))).unwrap_err());
            assert!(wrong.starts_with(&format!("token_file: {path}: ")), "{wrong}");
            assert!(wrong.contains("; name a") && !wrong.contains("chmod"), "{wrong}");
            assert!(!wrong.contains("remove"), "{wrong}");
        }
    }
}
