mod accuracy;
mod machine;
