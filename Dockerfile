# Penstock with its program on the PATH: docker build -t penstock . && docker run --rm penstock schedule show 1f1b
FROM debian:12 AS build
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates g++ cmake ninja-build git python3-venv
COPY . /penstock
WORKDIR /penstock
RUN scripts/build.sh release && cmake --install build/release --prefix /opt/penstock

FROM build
ENV PATH=/opt/penstock/bin:$PATH
ENTRYPOINT ["penstock"]
CMD ["--help"]
