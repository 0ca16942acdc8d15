"""TensorFlow Serving's model.config in our words."""

import pytest

from services.core.spec import BadValueError
from services.core.tf_serving_config import read


def test_each_model_has_its_place_policy_and_labels() -> None:
    one, two, three = read(
        """
        model_config_list {
          config { name: "half" base_path: "/models/half" model_platform: "tensorflow"
                   model_version_policy { specific { versions: 2 versions: 3 } }
                   version_labels { key: "stable" value: 2 } version_labels { key: "canary" value: 3 } }
          config { name: "plus" base_path: "gs://bucket/prod/plus_two/" model_version_policy { all { } } }
          config { name: "old" base_path: "/old" model_type: TENSORFLOW logging_config { } }
        }
        """
    )

    assert one.fields == {
        "repository": "/models",
        "framework": "tensorflow",
        "version_policy": {"specific": ["2", "3"]},
    }
    assert one.labels == {"stable": "2", "canary": "3"}
    assert two.fields == {
        "repository": "gs://bucket/prod",
        "folder": "plus_two",
        "framework": "tensorflow",
        "version_policy": {"all": True},
    }
    assert three.fields == {"repository": "/", "framework": "tensorflow"}
    assert "logging_config" in three.notes[0]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no model_config_list"),
        ("max_batch_size: 8", "no model_config_list"),
        ('model_config_list { config { name: "m" } }', "a base_path"),
        ('model_config_list { config { name: "m" base_path: "/m" model_platform: "caffe" } }', "'caffe' is not run"),
        ("model_config_list", "no text of a protobuf message"),
    ],
)
def test_other_files_are_refused(text: str, reason: str) -> None:
    with pytest.raises(BadValueError, match=reason):
        read(text)
