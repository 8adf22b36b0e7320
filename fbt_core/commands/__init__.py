"""The commands of ``python -m fbt_core``, one file each."""
