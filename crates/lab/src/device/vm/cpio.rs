//! The archive that a kernel unpacks as its first file system ("newc" format,
//! Documentation/driver-api/early-userspace/buffer-format.rst).

/// A file of the archive.
pub(crate) struct File {
    path: String,
    mode: u32,
    /// Major and minor number, of a device.
    device: [u32; 2],
    data: Vec<u8>,
}

impl File {
    /// A program or script.
    pub(crate) fn program(path: &str, data: impl Into<Vec<u8>>) -> File {
        File { path: path.into(), mode: 0o100_755, device: [0, 0], data: data.into() }
    }

    /// A folder, to come before what is in it.
    pub(crate) fn folder(path: &str) -> File {
        File { path: path.into(), mode: 0o040_755, device: [0, 0], data: Vec::new() }
    }

    /// The terminal of the first program.
    pub(crate) fn console() -> File {
        File { path: "dev/console".into(), mode: 0o020_600, device: [5, 1], data: Vec::new() }
    }
}

pub(crate) fn archive(files: &[File]) -> Vec<u8> {
    let end = File { path: "TRAILER!!!".into(), mode: 0, device: [0, 0], data: Vec::new() };
    let mut all = Vec::new();
    for (i, file) in files.iter().chain([&end]).enumerate() {
        all.extend(b"070701");
        let [major, minor] = file.device;
        let name_length = file.path.len() as u32 + 1;
        let fields = [
            i as u32 + 1, // inode
            file.mode,
            0, // owner
            0, // group
            1, // links
            0, // time
            file.data.len() as u32,
            0, // device that the file lies on
            0,
            major,
            minor,
            name_length,
            0, // checksum, of another variant
        ];
        fields.iter().for_each(|f| all.extend(format!("{f:08x}").bytes()));
        all.extend(file.path.bytes());
        all.push(0);
        all.resize(all.len().next_multiple_of(4), 0);
        all.extend(&file.data);
        all.resize(all.len().next_multiple_of(4), 0);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_laid_out_as_the_kernel_wants_it() {
        let all = archive(&[File::folder("bin"), File::program("bin/a", *b"xyz")]);
        // 110 octets of header, the name with its 0, to a multiple of 4.
        assert_eq!(all.len(), 116 + (116 + 4) + 124);
        assert_eq!(&all[..14], b"07070100000001");
        assert_eq!(&all[14..22], b"000041ed"); // a folder, rwxr-xr-x
        let file = &all[116..];
        assert_eq!(&file[54..62], b"00000003");
        assert_eq!((&file[110..116], &file[116..120]), (&b"bin/a\0"[..], &b"xyz\0"[..]));
        assert!(all.ends_with(b"TRAILER!!!\0\0\0\0"));
    }
}
