"""Experiments on many models: a plan of jobs, run on cores or a cluster, resumed after a kill, one table of rows."""
