//! The end of a certificate's time (RFC 5280, 4.1), which is all that is read of one here.

const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// Elements of DER, one after another.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = (u8, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, mut rest) = rest.split_first()?;
        let mut size = usize::from(first);
        if first >= 0x80 {
            let (digits, after) = rest.split_at_checked(usize::from(first & 0x7f))?;
            if digits.len() > size_of::<u32>() {
                return None;
            }
            size = digits.iter().fold(0, |sum, &digit| sum << 8 | usize::from(digit));
            rest = after;
        }
        let (content, after) = rest.split_at_checked(size)?;
        self.0 = after;
        Some((tag, content))
    }
}

fn inner(element: Option<(u8, &[u8])>) -> Option<Elements<'_>> {
    element.filter(|(tag, _)| *tag == SEQUENCE).map(|(_, content)| Elements(content))
}

/// Seconds of Unix time until which the certificate is valid. None if it is damaged.
pub fn not_after(certificate: &[u8]) -> Option<i64> {
    let mut body = inner(inner(Elements(certificate).next())?.next())?;
    let mut first = body.next()?;
    if first.0 == VERSION {
        first = body.next()?;
    }
    let (_serial, _signature, _issuer) = (first, body.next()?, body.next()?);
    let (tag, digits) = inner(body.next())?.nth(1)?;
    seconds(tag, digits)
}

/// "YYMMDDHHMMSSZ", or with four digits of the year.
fn seconds(tag: u8, text: &[u8]) -> Option<i64> {
    let digits: Vec<i64> = text.strip_suffix(b"Z")?.iter().map(|&digit| i64::from(digit) - i64::from(b'0')).collect();
    if digits.iter().any(|digit| !(0..10).contains(digit)) {
        return None;
    }
    let (year, rest) = match (tag, digits.len()) {
        (UTC_TIME, 12) => {
            let short = digits[0] * 10 + digits[1];
            (if short < 50 { 2000 + short } else { 1900 + short }, &digits[2..])
        }
        (GENERALIZED_TIME, 14) => (digits[..4].iter().fold(0, |sum, digit| sum * 10 + digit), &digits[4..]),
        _ => return None,
    };
    let pairs: Vec<i64> = rest.chunks(2).map(|pair| pair[0] * 10 + pair[1]).collect();
    let (month, day) = (pairs[0], pairs[1]);
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // Days since 1970 of a year that begins in March, so that a leap day is its last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = year * 365 + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + (month * 153 + 2) / 5 + day - 719_469;
    Some(((days * 24 + pairs[2]) * 60 + pairs[3]) * 60 + pairs[4])
}
