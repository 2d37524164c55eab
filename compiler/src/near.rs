//! Suggestions for misspelt names.

/// The most similar of the names, if at most a third of its characters differ.
pub fn near<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> Option<&'n str> {
    let most = (written.chars().count() / 3).max(1);
    let nearest = names.into_iter().map(|name| (distance(written, name), name)).min()?;
    (nearest.0 <= most).then_some(nearest.1)
}

/// `; is NAME meant?`, or nothing.
pub fn hint<'n>(written: &str, names: impl IntoIterator<Item = &'n str>) -> String {
    near(written, names).map(|name| format!("; is `{name}` meant?")).unwrap_or_default()
}

/// Edit distance, ignoring case.
pub(crate) fn distance(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|text| text.to_lowercase().chars().take(100).collect::<Vec<char>>());
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        row[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_near_is_found_and_nothing_else() {
        let names = ["Relu", "LeakyRelu", "Conv", "ConvTranspose", "Gelu"];
        for (written, name) in
            [("relu", Some("Relu")), ("Rellu", Some("Relu")), ("Convv", Some("Conv")), ("LeakRelu", Some("LeakyRelu"))]
        {
            assert_eq!(near(written, names), name, "{written}");
        }
        assert_eq!((near("Softmax", names), near("x", [])), (None, None));
        assert_eq!((distance("kitten", "sitting"), distance("", "abc"), distance("abc", "")), (3, 3, 3));
    }
}
