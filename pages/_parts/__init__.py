"""What pages share. Imported only as `pages._parts...`, so that no module ever lives twice."""
