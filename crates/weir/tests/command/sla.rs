//! Contracts in files of their own: `include`, and tables that come and go.

use crate::json::documented;
use crate::support::{Folder, weir};

const MAIN: &str = "interface lan0
interface wan0 bandwidth 10M attach bridge lan0 hfsc
class hfsc wan0 rt root [ls 0 0 8M] [ul 0 0 1M]
class hfsc wan0 be root [ls 0 0 2M] default
filter wan0 rt 0 0 0 0 0 dscp EF
recognise lan0
allocate wan0 rt from 64K to 8M
";
const TABLE: &str = "ID,IP,Mask,BW,Shared,DSCP,Policy
17,198.51.100.17,32,512K,20,EF,BE
17,2001:db8:17::,56,512K,20,EF,BE
18,10.0.8.0,24,4M,100,VA,DROP
";

/// A table becomes a file, that file is included, and the table comes back from the whole.
#[test]
fn a_table_is_imported_included_and_exported() {
    let folder = Folder::new();
    let lines = weir(&["sla", "import", &folder.write("t.csv", TABLE), "--interface", "lan0"]).ok().out;
    assert!(lines.starts_with("sla lan0 17 198.51.100.17/32,2001:db8:17::/56 bw 512K"), "{lines}");
    folder.write("slas.conf", &lines);
    let conf = folder.write("a.conf", format!("{MAIN}include slas.conf\n"));
    weir(&["check", &conf]).ok();
    assert_eq!(weir(&["sla", "export", &conf]).ok().out, TABLE);
    let listed = weir(&["sla", "list", &conf]).ok().out;
    assert!(listed.contains("10.0.8.0/24") && listed.contains("drop"), "{listed}");
    let value = documented("weir sla list -j", &["sla", "list", "-j", &conf]);
    assert_eq!((&value["contracts"][1]["id"], &value["contracts"][1]["dscp"]), (&18.into(), &44.into()));
}

/// What is wrong in an included file, or with the line that includes it, is said where it stands: of a
/// configuration by itself and of one that a scenario names.
#[test]
fn an_included_file_has_its_own_lines() {
    let folder = Folder::new();
    let slas = folder.write("slas.conf", "# contracts\nsla lan0 17 10.0.0.1/24 bw 1M\n");
    let conf = folder.write("a.conf", format!("{MAIN}include slas.conf\n"));
    let run = weir(&["check", "-j", &conf]);
    let said = &run.json()["files"][0]["diagnostics"][0];
    assert_eq!(
        (&said["file"], &said["line"], &said["column"]),
        (&slas.as_str().into(), &2.into(), &13.into())
    );
    weir(&["up", "--unconfined", &conf]).fails(2, &["slas.conf:2:13", "has bits beyond its length"]);
    let missing = folder.write("b.conf", format!("{MAIN}include none.conf\n"));
    let check = weir(&["check", &missing]);
    assert!(check.code == 2 && check.out.contains("b.conf:8:9"), "{check:?}");
    weir(&["sla", "list", &missing]).fails(2, &["b.conf:8:9", "none.conf` cannot be included"]);
    let circle = folder.write("c.conf", "include c.conf\n");
    weir(&["sla", "list", &circle]).fails(2, &["files include each other", "c.conf:1:9"]);
    weir(&["sla", "import", &folder.write("t.csv", "17,x,24,1M,0,EF,BE\n"), "--interface", "lan0"])
        .fails(2, &["t.csv:1:4", "`x` is no address", "2001:db8::1"]);
}
