//! Text in LaTeX documents.

/// Text that stays text. What this fonts' encoding lacks becomes a question mark.
pub(crate) fn escape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\textbackslash{}"),
            '{' | '}' | '$' | '&' | '#' | '%' | '_' => out.extend(['\\', c]),
            '~' => out.push_str("\\textasciitilde{}"),
            '^' => out.push_str("\\textasciicircum{}"),
            '<' => out.push_str("\\textless{}"),
            '>' => out.push_str("\\textgreater{}"),
            '"' => out.push_str("\\textquotedbl{}"),
            '|' => out.push_str("\\textbar{}"),
            'µ' | 'μ' => out.push_str("\\textmu{}"),
            '\u{2212}' => out.push_str("$-$"),
            '\u{2009}' => out.push_str("\\,"),
            '\u{2265}' => out.push_str("$\\geq$"),
            '±' => out.push_str("$\\pm$"),
            '⁻' => out.push_str("$^{-}$"),
            '³' => out.push_str("$^{3}$"),
            '⁴' => out.push_str("$^{4}$"),
            '…' => out.push_str("\\ldots{}"),
            // A double hyphen is a dash in this font.
            '-' => out.push_str("{-}"),
            c if c.is_control() => out.push(' '),
            c if c.is_ascii() => out.push(c),
            'À'..='ÿ' => out.push(c),
            _ => out.push('?'),
        }
    }
    out
}
