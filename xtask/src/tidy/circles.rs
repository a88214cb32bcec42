//! Files of a crate take from one another in one direction, so that each can be read before those that use it.
//!
//! A module and the files below it count as one house: what is below may take from what is above it. `lib.rs`, which
//! shows all of them to the outside, takes no part.

use super::allowed;
use super::code::rust;
use super::{File, Violation};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Attribute, Item, UseTree};

/// How often a name may be shown on.
const DEEPEST: usize = 8;

pub fn files_form_no_circle(files: &[File]) -> Vec<Violation> {
    let mut crates: BTreeMap<&str, BTreeMap<Vec<String>, Module<'_>>> = BTreeMap::new();
    for file in rust(files, false) {
        let Some((name, inside)) = file.path.split_once("/src/") else { continue };
        // A file that does not parse is the compiler's concern.
        let Ok(tree) = syn::parse_file(&file.text) else { continue };
        crates.entry(name).or_default().insert(place(inside), Module::of(file, &tree));
    }
    crates.values().flat_map(circles).collect()
}

/// The path of the module that a file of `src` is.
fn place(inside: &str) -> Vec<String> {
    let path = inside.trim_end_matches(".rs");
    let path = path.strip_suffix("/mod").unwrap_or(path);
    match path {
        "lib" | "main" | "mod" => Vec::new(),
        path => path.split('/').map(str::to_owned).collect(),
    }
}

/// What a file defines, and takes from elsewhere.
struct Module<'f> {
    file: &'f File,
    defines: BTreeSet<String>,
    takes: Vec<Vec<String>>,
    /// What it only shows of the files below it.
    shows: Vec<Vec<String>>,
}

impl<'f> Module<'f> {
    fn of(file: &'f File, tree: &syn::File) -> Self {
        let mut module = Module { file, defines: BTreeSet::new(), takes: Vec::new(), shows: Vec::new() };
        for item in tree.items.iter().filter(|item| !is_for_tests(attributes(item))) {
            match item {
                Item::Use(item) => {
                    let is_own = matches!(item.vis, syn::Visibility::Inherited);
                    let paths = if is_own { &mut module.takes } else { &mut module.shows };
                    spread(&item.tree, &mut Vec::new(), paths);
                }
                Item::Macro(_) => {}
                item => {
                    module.defines.extend(name(item));
                    module.visit_item(item);
                }
            }
        }
        module
    }

    /// The name that this file has from elsewhere, and whence.
    fn shown(&self, name: &str) -> Option<&Vec<String>> {
        self.takes.iter().chain(&self.shows).find(|path| path.last().is_some_and(|last| last == name))
    }
}

impl<'ast> Visit<'ast> for Module<'_> {
    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        spread(&item.tree, &mut Vec::new(), &mut self.takes);
    }
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        if matches!(names.first().map(String::as_str), Some("crate" | "super" | "self")) {
            self.takes.push(names);
        }
        visit::visit_path(self, path);
    }
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Mod(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let of = |list: &syn::MetaList| list.path.is_ident("cfg") && list.tokens.to_string() == "test";
        attribute.meta.require_list().is_ok_and(of)
    })
}

fn name(item: &Item) -> Option<String> {
    let ident = match item {
        Item::Const(item) => &item.ident,
        Item::Enum(item) => &item.ident,
        Item::Fn(item) => &item.sig.ident,
        Item::Static(item) => &item.ident,
        Item::Struct(item) => &item.ident,
        Item::Trait(item) => &item.ident,
        Item::Type(item) => &item.ident,
        Item::Union(item) => &item.ident,
        _ => return None,
    };
    Some(ident.to_string())
}

/// Every path of a `use`.
fn spread(tree: &UseTree, before: &mut Vec<String>, paths: &mut Vec<Vec<String>>) {
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            spread(&path.tree, before, paths);
            before.pop();
        }
        UseTree::Group(group) => group.items.iter().for_each(|tree| spread(tree, before, paths)),
        UseTree::Name(name) => paths.push(before.iter().cloned().chain([name.ident.to_string()]).collect()),
        UseTree::Rename(name) => paths.push(before.iter().cloned().chain([name.ident.to_string()]).collect()),
        UseTree::Glob(_) => {}
    }
}

type Modules<'f> = BTreeMap<Vec<String>, Module<'f>>;

/// A path as seen from the root of the crate; none if it leaves the crate.
fn absolute(modules: &Modules<'_>, from: &[String], path: &[String]) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some(from.iter().chain(rest).cloned().collect()),
        "super" => {
            let ups = path.iter().take_while(|name| *name == "super").count();
            let above = &from[..from.len().saturating_sub(ups)];
            Some(above.iter().chain(&path[ups..]).cloned().collect())
        }
        _ => {
            let below: Vec<String> = from.iter().chain(path).cloned().collect();
            modules.contains_key(&below[..=from.len()]).then_some(below)
        }
    }
}

/// The module that defines what a path names; none for a module itself.
fn home<'m>(modules: &'m Modules<'_>, mut path: Vec<String>) -> Option<&'m [String]> {
    for _ in 0..DEEPEST {
        let (place, module, rest) = (0..=path.len()).rev().find_map(|length| {
            let (place, module) = modules.get_key_value(&path[..length])?;
            Some((place, module, &path[length..]))
        })?;
        let (name, inside) = rest.split_first()?;
        let elsewhere = module.shown(name).filter(|_| !module.defines.contains(name));
        match elsewhere.and_then(|from| absolute(modules, place, from)) {
            Some(from) => path = from.into_iter().chain(inside.iter().cloned()).collect(),
            None => return Some(place),
        }
    }
    None
}

/// Which modules each takes from.
fn arrows<'m>(modules: &'m Modules<'_>) -> BTreeMap<&'m [String], BTreeSet<&'m [String]>> {
    let of = |(place, module): (&'m Vec<String>, &'m Module<'_>)| {
        let to = |path: &Vec<String>| home(modules, absolute(modules, place, path)?);
        let counts = |to: &&[String]| {
            let ends = [&module.file.path, &modules[*to].file.path];
            !place.starts_with(to)
                && !allowed::ARROWS.iter().any(|(from, to, _)| *from == ends[0] && *to == ends[1])
        };
        (place.as_slice(), module.takes.iter().filter_map(to).filter(counts).collect())
    };
    modules.iter().filter(|(place, _)| !place.is_empty()).map(of).collect()
}

/// All that can be reached from a module by arrows.
fn reached<'m>(
    arrows: &BTreeMap<&'m [String], BTreeSet<&'m [String]>>,
    from: &'m [String],
) -> BTreeSet<&'m [String]> {
    let (mut seen, mut left) = (BTreeSet::new(), vec![from]);
    while let Some(place) = left.pop() {
        for &to in arrows.get(place).into_iter().flatten() {
            if seen.insert(to) {
                left.push(to);
            }
        }
    }
    seen
}

fn circles(modules: &Modules<'_>) -> Vec<Violation> {
    let arrows = arrows(modules);
    let reached: BTreeMap<_, _> = arrows.keys().map(|&place| (place, reached(&arrows, place))).collect();
    let mut found = Vec::new();
    for (&place, all) in &reached {
        let back = |to: &&&[String]| reached.get(**to).is_some_and(|all| all.contains(place));
        let circle: Vec<&&[String]> = all.iter().filter(back).collect();
        // Each circle is told once, of its first file.
        if circle.first().is_some_and(|first| **first == place) {
            let names: Vec<String> = circle.iter().map(|place| place.join("::")).collect();
            let what = format!(
                "takes in a circle from {}: let what two of them need of each other stand in a third file",
                names.join(", ")
            );
            found.push(Violation::new(modules[place].file, 1, what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::file;

    fn found(files: &[(&str, &str)]) -> usize {
        let files: Vec<File> =
            files.iter().map(|(path, text)| file(&format!("crates/x/src/{path}"), text)).collect();
        files_form_no_circle(&files).len()
    }

    const A: (&str, &str) = ("a.rs", "use crate::b::B;\npub struct A(B);");

    #[test]
    fn two_files_that_take_from_one_another_are_found() {
        assert_eq!(found(&[A, ("b.rs", "pub struct B;\nfn f() -> Option<crate::a::A> { None }")]), 1);
        assert_eq!(found(&[A, ("b.rs", "pub struct B;\nfn f() { use super::a::A; }")]), 1);
        assert_eq!(found(&[A, ("b.rs", "pub struct B;"), ("c.rs", "use crate::a::A;\nuse crate::b::B;")]), 0);
        assert_eq!(found(&[A, ("b.rs", "pub struct B;\n#[cfg(test)]\nmod tests { use crate::a::A; }")]), 0);
    }

    #[test]
    fn a_name_is_followed_to_where_it_stands() {
        let lib = ("lib.rs", "mod a;\nmod b;\npub use a::A;");
        assert_eq!(found(&[lib, A, ("b.rs", "use crate::A;\npub struct B;")]), 1);
        let third = ("c.rs", "pub struct C;");
        assert_eq!(found(&[lib, A, third, ("b.rs", "use crate::c::C;\npub struct B;")]), 0);
    }

    #[test]
    fn what_is_below_a_module_may_take_from_it() {
        let above = ("a.rs", "mod b;\nuse b::B;\npub struct A(B);");
        assert_eq!(found(&[above, ("a/b.rs", "use super::A;\npub struct B;")]), 0);
        let aside = ("c.rs", "use crate::a::A;\npub struct C;");
        assert_eq!(found(&[above, aside, ("a/b.rs", "use crate::c::C;\npub struct B;")]), 1);
    }
}
