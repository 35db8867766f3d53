# seqdg on a CPU. Build and run the demo:
#   docker build -t seqdg .
#   docker run --rm -v "$PWD/runs:/home/seqdg/runs" seqdg
# Anything else: docker run --rm -v "$PWD:/home/seqdg/here" seqdg seqdg fit here/table.csv --label y --domain site --out here/model
FROM python:3.12-slim

# The build of torch without CUDA, of the version that the tests run with.
COPY constraints.txt /tmp/constraints.txt
RUN pip install --no-cache-dir -c /tmp/constraints.txt --index-url https://download.pytorch.org/whl/cpu torch

COPY pyproject.toml README.md LICENSE /tmp/seqdg/
COPY src /tmp/seqdg/src
RUN pip install --no-cache-dir -c /tmp/constraints.txt "/tmp/seqdg[figures,onnx]" && rm -rf /tmp/seqdg

RUN useradd --create-home seqdg && mkdir /home/seqdg/runs && chown seqdg /home/seqdg/runs
USER seqdg
WORKDIR /home/seqdg

# As `make demo`: compare eight algorithms on bundled data, and write a report.
CMD ["sh", "-c", "seqdg bench && seqdg report runs/rotated-mnist"]
