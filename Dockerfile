# The app alone, as an unprivileged user. Build: docker build -t fiberscope .
# Run:   docker run --rm -p 127.0.0.1:8501:8501 fiberscope
# torch for the CPU is enough to look at models of this size; pass another base image for a GPU.
# No compiler is in it, so that exact attention runs on torch alone: add g++ where long FBT texts must be quick.
ARG BASE=python:3.11-slim
FROM ${BASE}

RUN useradd --create-home --uid 10001 scope
WORKDIR /app
COPY requirements.txt .
RUN pip install --no-cache-dir -r requirements.txt

COPY streamlit_app.py pyproject.toml ./
COPY .streamlit .streamlit
COPY fbt_core fbt_core
COPY app app
COPY pages pages
COPY assets assets

USER scope
ENV OMP_NUM_THREADS=1
EXPOSE 8501
HEALTHCHECK --start-period=30s CMD \
  python -c "import urllib.request as u; u.urlopen('http://127.0.0.1:8501/_stcore/health', timeout=3)"
# Inside the container the server must listen on every interface of it; the -p above keeps it on the host's loopback.
CMD ["streamlit", "run", "streamlit_app.py", "--server.address=0.0.0.0", "--server.port=8501"]
